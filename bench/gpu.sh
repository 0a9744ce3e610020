#!/usr/bin/env bash
# The table of bench.moe on a CUDA device, in under 8 minutes, with whatever `python3` has there (torch is enough; peers
# that cannot be imported say so). The CSV goes to the folder $OUT if that is set, else to bench/results. At M=1024,
# H=8192, E=128 a layer has 2.15 G parameters, 8.6 GB in float32; all variants together with one's gradients, casts and
# activations stay under 80 GB. bf16-weights: stored in bfloat16; bf16: cast from float32 in every pass.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
if ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
  echo "error: $python finds no torch with a CUDA device; nothing was measured"
  exit 1
fi
exec timeout 470 "$python" -m bench.moe --device cuda --dtype bf16-weights bf16 --out "${OUT:-bench/results}" "$@"
