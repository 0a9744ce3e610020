#!/usr/bin/env bash
# Makes the environments of peers. Each also has all packages of .venv, such as torch. Usage:
#   bench/setup.sh [moe|train|quality|data|decode|plan]  for a benchmark
#   bench/setup.sh export                        for the tests of exported models
#   bench/setup.sh mutate                        for `make mutate`
# The environments are:
#   .venv-bench    transformers 4.57.1 (5.x runs only two experts of NLLB-MoE) with an older huggingface-hub and datasets;
#                  ctranslate2, peft
#   .venv-transformers5  transformers 5.23, for tests of exported models
#   .venv-joeynmt  joeynmt 2.3.0, which wants protobuf < 3.21
#   .venv-eole     eole 0.6.4
#   .venv-opusfilter  opusfilter 3.3.1
#   .venv-mutate   mutmut 3.8.1, no peer
# Packages are installed without dependencies, so bench/*.lock names every package that a peer needs. If a peer cannot be
# installed, its error is in install.log and in its row of the benchmark.
set -euo pipefail
cd "$(dirname "$0")/.."
base=$PWD/.venv
packages='import sysconfig; print(sysconfig.get_path("purelib"))'

environment() { # name, lock
  local own=$PWD/.venv-$1 lock=bench/$2
  if [[ $own/.ready -nt $lock && $own/.ready -nt $base/.ready ]]; then return; fi
  rm -rf "$own"
  "$base/bin/python" -m venv --without-pip "$own"
  echo '*' >"$own/.gitignore"
  "$base/bin/python" -c "$packages" >"$("$own/bin/python" -c "$packages")/pipeline.pth"
  "$base/bin/python" -m pip --python "$own/bin/python" install --quiet --disable-pip-version-check --no-deps --no-compile \
    -r "$lock" 2>&1 | tee "$own/install.log" >&2 || return 1 # `set -e` is off in a function whose failure is caught
  touch "$own/.ready"
}

if [[ ${1:-} = mutate ]]; then
  environment mutate mutate.lock
  exit
fi
environment bench requirements.lock
case ${1:-moe} in
  train | quality) peers=(joeynmt eole) ;;
  data) peers=(opusfilter) ;;
  export)
    environment transformers5 transformers5.lock
    peers=()
    ;;
  *) peers=() ;;
esac
for peer in "${peers[@]}"; do
  (environment "$peer" "$peer.lock") || echo "warning: $peer could not be installed" >&2
done
