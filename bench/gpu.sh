#!/usr/bin/env bash
# Runs benchmarks or an experiment on one CUDA device that is available for a limited time:
#   bench/gpu.sh [moe|train|plan|experiment] [options]
# It uses the packages of `python3` and the wheels in the folder $WHEELS (wheels/), and downloads nothing.
# A command ends after $LIMIT seconds (540) at the latest. CSVs go to the folder $OUT, or to bench/results without it.
#   moe     runs bench.moe. It needs torch only; peers that cannot be imported have a note in their rows. At M=1024,
#           H=8192, E=128 a layer has 2.15 G parameters, 8.6 GB in float32. All variants, with the gradients, casts and
#           activations of one, need less than 80 GB. The precision bf16-weights stores weights in bfloat16, and bf16
#           casts them from float32 in every pass.
#   train   measures tokens/s and MFU of GShard's MoE(16E, 12L). It needs all requirements of the pipeline. The model has
#           about 2 G parameters: 60 GB with gradients, AdamW's moments and ZeRO's copies.
#   plan    measures the rates of the device, for $OUT/cuda.yaml (see `make plan DEVICE=path/to/cuda.yaml`). Then it
#           compares predicted with measured steps and memory, in $OUT/plan-<device>.csv. RUNTIME=cpu needs no device.
#   experiment [key=value ...]
#           runs a piece of the sweep experiment=freesoft38, or $EXPERIMENT. It needs all requirements of the pipeline.
#           key=value are overrides, such as corpus.path=path/to/corpora. The sweep gets a signal to stop 50 s before the
#           limit, and has 45 s to save its work. The same command continues it. The exit code is 0 after such a stop,
#           and when the sweep is complete. Eight baselines train at the same time, because one is too small for a
#           device. Artifacts and runs are in the checkout, or in $PLACE, and must be kept between pieces. If $OUT is
#           set, the results so far go there too, as freesoft38.tar.gz.aa, .ab, ... of at most $PART (15M).
#           RUNTIME=cpu needs no device.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
limit=${LIMIT:-540}
if [[ ! $limit =~ ^[0-9]+$ || $limit -le 70 ]]; then
  echo "error: LIMIT=$limit is too short or no number; give the seconds that a command may take, more than 70" >&2
  exit 1
fi
bench=moe
case ${1:-} in moe | train | plan | experiment) bench=$1 && shift ;; esac

experiment() { # key=value ...
  local code=0 experiment=${EXPERIMENT-freesoft38} runs=${PLACE:+$PLACE/}runs began=$SECONDS
  local name=${NAME:-$experiment}
  if [[ -z $name ]]; then echo "error: EXPERIMENT is empty; set NAME, of the sweep" >&2 && return 1; fi
  timeout --preserve-status --signal=TERM --kill-after=45 "$((limit - 50))" "$python" -m pipeline sweep \
    ${experiment:+"experiment=$experiment"} "name=$name" "runtime=${RUNTIME:-gpu}" "runtime.runs=$runs" \
    "runtime.artifacts=${PLACE:-data}/artifacts" runtime.parallel_baselines=8 "$@" || code=$?
  if [[ -n ${OUT:-} && -d $runs/$name ]]; then
    rm -f "$OUT/$name".tar.gz.*
    tar --create --gzip --directory "$runs" "$name" | split --bytes="${PART:-15M}" - "$OUT/$name.tar.gz."
  fi
  case $code in
    0) echo "all is done, in $runs/$name" ;;
    75)
      echo "this piece ended in order after $((SECONDS - began)) s; the table above says what is done and what is" \
        "left, and the same command goes on"
      ;;
    *) echo "error: this piece ended with exit code $code after $((SECONDS - began)) s" >&2 && return "$code" ;;
  esac
}

if [[ ${RUNTIME:-gpu} = gpu ]] &&
  ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
  echo "error: $python finds no torch with a CUDA device; nothing was done"
  exit 1
fi
wheels=${WHEELS:-wheels}
if [[ -d $wheels ]]; then
  site=$(mktemp -d)
  trap 'rm -rf "$site"' EXIT
  "$python" -m pip install --quiet --no-index --no-deps --target "$site" "$wheels"/*.whl
  export PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH}
fi
if [[ $bench == experiment ]]; then
  experiment "$@"
  exit
fi
if [[ $bench == plan ]]; then
  device=cuda
  if [[ ${RUNTIME:-gpu} == cpu ]]; then device=cpu; fi
  out=${OUT:-bench/results}
  options=(--device "$device" --rates "$out/$device.yaml" --out "$out")
  timeout "$((limit * 10 / 27))" "$python" -m bench.plan --calibrate "${options[@]}" "$@"
  timeout "$((limit * 11 / 18))" "$python" -m bench.plan "${options[@]}" "$@"
  exit
fi
options=(--device cuda --out "${OUT:-bench/results}")
if [[ $bench == moe ]]; then options+=(--dtype bf16-weights bf16); fi
timeout "$((limit - 70))" "$python" -m "bench.$bench" "${options[@]}" "$@"
