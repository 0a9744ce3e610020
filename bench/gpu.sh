#!/usr/bin/env bash
# A benchmark on one CUDA device, in under 8 minutes, with whatever `python3` has there: bench/gpu.sh [moe|train] [options].
# The CSV goes to the folder $OUT if that is set, else to bench/results. Wheels in a folder `wheels/` are used from there.
#   moe     the table of bench.moe (torch is enough; peers that cannot be imported say so). At M=1024, H=8192, E=128 a
#           layer has 2.15 G parameters, 8.6 GB in float32; all variants together with one's gradients, casts and
#           activations stay under 80 GB. bf16-weights: stored in bfloat16; bf16: cast from float32 in every pass.
#   train   tokens/s and MFU of training GShard's MoE(16E, 12L), all requirements of the pipeline needed. About 2 G
#           parameters: with gradients, AdamW's moments and ZeRO's copies 60 GB.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
bench=moe
case ${1:-} in moe | train) bench=$1 && shift ;; esac
if ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
  echo "error: $python finds no torch with a CUDA device; nothing was measured"
  exit 1
fi
if [[ -d wheels ]]; then
  site=$(mktemp -d)
  trap 'rm -rf "$site"' EXIT
  "$python" -m pip install --quiet --no-index --no-deps --target "$site" wheels/*.whl
  export PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH}
fi
options=(--device cuda --out "${OUT:-bench/results}")
if [[ $bench == moe ]]; then options+=(--dtype bf16-weights bf16); fi
timeout 470 "$python" -m "bench.$bench" "${options[@]}" "$@"
