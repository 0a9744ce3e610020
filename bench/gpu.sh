#!/usr/bin/env bash
# Work for one CUDA device that is lent for a limited time, with whatever `python3` has there:
# bench/gpu.sh [moe|train|plan|experiment] [options]. Nothing is fetched: wheels in the folder $WHEELS (wheels/) are used.
# No command takes longer than $LIMIT seconds (540).
#   moe     the table of bench.moe (torch is enough; peers that cannot be imported say so). At M=1024, H=8192, E=128 a
#           layer has 2.15 G parameters, 8.6 GB in float32; all variants together with one's gradients, casts and
#           activations stay under 80 GB. bf16-weights: stored in bfloat16; bf16: cast from float32 in every pass.
#   train   tokens/s and MFU of training GShard's MoE(16E, 12L), all requirements of the pipeline needed. About 2 G
#           parameters: with gradients, AdamW's moments and ZeRO's copies 60 GB.
#           The CSV of both goes to the folder $OUT if that is set, else to bench/results.
#   plan    rates of the device, to $OUT/cuda.yaml (for `make plan DEVICE=path/to/cuda.yaml`), then steps and memory that
#           the planner predicts by them beside what is measured, to $OUT/plan-<device>.csv. RUNTIME=cpu tries it
#           without a device.
#   experiment [key=value ...]
#           a piece of the sweep experiment=freesoft38 (or $EXPERIMENT; then key=value, as corpus.path=path/to/corpora),
#           all requirements needed. It is asked to stop 50 s before the limit, saves what is under way, for which it has
#           45 s, and the same command goes on from there: exit code 0 when it ended so, or all is done. Eight baselines
#           train at a time, for one is too small for a device. Artifacts and runs are in the places of the checkout or
#           in $PLACE, to be kept between pieces. Results so far also go to $OUT, if that is set, as
#           freesoft38.tar.gz.aa, .ab, ... of $PART (15M) at most. RUNTIME=cpu tries it without a device.
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
