#!/usr/bin/env bash
# Makes .venv-bench: the peers of bench/requirements.lock beside everything that .venv has. transformers 4.57.1 (5.x runs
# only two experts of NLLB-MoE) needs an older huggingface-hub than the pipeline, hence an environment of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
base=$PWD/.venv own=$PWD/.venv-bench
if [[ $own/.ready -nt bench/requirements.lock && $own/.ready -nt $base/.ready ]]; then exit 0; fi
rm -rf "$own"
"$base/bin/python" -m venv --without-pip "$own"
echo '*' >"$own/.gitignore"
packages='import sysconfig; print(sysconfig.get_path("purelib"))'
"$base/bin/python" -c "$packages" >"$("$own/bin/python" -c "$packages")/pipeline.pth"
"$base/bin/python" -m pip --python "$own/bin/python" install --quiet --disable-pip-version-check --no-deps \
  -r bench/requirements.lock
touch "$own/.ready"
