#!/usr/bin/env bash
# Runs benchmarks, checks and experiments on one CUDA device that is available for a limited time:
#   bench/gpu.sh                    all pieces below, the most valuable first, in $LIMIT seconds together
#   bench/gpu.sh PIECE [options]    one piece
# A command ends after $LIMIT seconds (540) at the latest. Without a piece, the same command goes on with the pieces that
# are not done. What each piece prints is in $OUT/gpu-<device>/<piece>.txt once it is done, and in <piece>.partial before;
# remove the .txt to run the piece again. A piece that failed is tried again by the next command, after the new ones.
# It uses the packages of `python3`, or $PYTHON, and the wheels in the folder $WHEELS (wheels/), and downloads nothing. A
# wheel of torch there is left out on a GPU, because torch for CPUs would take the place of the one for CUDA.
# All pieces but moe need all requirements of the pipeline.
# CSVs go to the folder $OUT, or to bench/results without it. RUNTIME=cpu needs no device. QUICK=1 takes tiny sizes.
#   verify  compares the engine with plain PyTorch on the device in one process, in float64, fp32 and bf16 (`make verify`).
#   tests   compares functions that compute on a GPU in their own way with float64 on a CPU (tests/cuda), where the tests
#           are, and pytest and hypothesis.
#   split   measures MFU, and the time of a step by part, beside the planner's prediction and GShard's Figure 8. It keeps
#           the profiler's trace. Memory as for train.
#   train   measures tokens/s and MFU of GShard's MoE(16E, 12L) in the training loop. The model has about 2 G
#           parameters: 60 GB with gradients, AdamW's moments and ZeRO's copies.
#   moe     runs bench.moe. It needs torch only; peers that cannot be imported have a note in their rows. At M=1024,
#           H=8192, E=128 a layer has 2.15 G parameters, 8.6 GB in float32. All variants, with the gradients, casts and
#           activations of one, need less than 80 GB. The precision bf16-weights stores weights in bfloat16, and bf16
#           casts them from float32 in every pass.
#   decode  compares beam search with transformers' `generate` on the same weights, where that can be imported. Before
#           that it trains two small models, unless an earlier command has.
#   plan    measures the rates of the device, for $OUT/cuda.yaml (see `make plan DEVICE=path/to/cuda.yaml`). Then it
#           compares predicted with measured steps and memory, in $OUT/plan-<device>.csv.
#   demo    trains and scores the demo (`make train`), in pieces as experiment.
#   experiment [key=value ...]
#           runs a piece of the sweep experiment=freesoft38, or $EXPERIMENT.
#           key=value are overrides, such as corpus.path=path/to/corpora. The sweep gets a signal to stop 130 s before the
#           limit, and has 125 s to save its work, as long as it waits for its own processes. The same command continues
#           it. The exit code is 0 after such a stop, and when the sweep is complete. Eight baselines train at the same
#           time, because one is too small for a device. Artifacts and runs are in the checkout, or in $PLACE, and must be
#           kept between pieces. If $OUT is set, the results so far go there too, as freesoft38.tar.gz.aa, .ab, ... of at
#           most $PART (15M).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
limit=${LIMIT:-540}
runtime=${RUNTIME:-gpu}
out=${OUT:-bench/results}
quick=${QUICK:+--quick}
pieces=(verify tests split train moe decode plan demo experiment)
grace=125 # seconds; pipeline/sweep/launch.py waits for 120
least=$((grace + 10))
if [[ ! $limit =~ ^[0-9]+$ || $limit -le $least ]]; then
  echo "error: LIMIT=$limit is too short or no number; give the seconds that a command may take, more than $least" >&2
  exit 1
fi
piece=${1:-}
if [[ -n $piece && " ${pieces[*]} " != *" $piece "* ]]; then
  echo "error: $piece is no piece; there are ${pieces[*]}" >&2
  exit 1
fi
device=cuda
if [[ $runtime == cpu ]]; then device=cpu; fi

timed() { # seconds, command ...; the processes of a command have 60 s to end when it is asked to
  timeout --kill-after=65 "$@"
}

resumable() { # name, words of the pipeline's command line ...; they get a signal to stop, and time to save
  local name=$1 code=0 began=$SECONDS
  shift
  local runs=${PLACE:+$PLACE/}runs
  timeout --preserve-status --signal=TERM --kill-after="$grace" "$((limit - grace - 5))" "$python" -m pipeline "$@" \
    "name=$name" "runtime=$runtime" "runtime.runs=$runs" "runtime.artifacts=${PLACE:-data}/artifacts" || code=$?
  if [[ -n ${OUT:-} && -d $runs/$name ]]; then
    mkdir -p "$OUT"
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

run_piece() { # piece, options ...
  local piece=$1 options=(--device "$device" --out "$out" ${quick:+"$quick"})
  shift
  case $piece in
    verify)
      local tiny=(steps=2 "zero_stages=[1]" "groups=[4]" "precisions=[fp32]")
      timed "$((limit - 70))" "$python" -m pipeline verify "device=$device" "worlds=[1]" ${quick:+"${tiny[@]}"} "$@"
      ;;
    tests)
      if [[ ! -d tests/cuda ]]; then echo "there is no folder tests/cuda" && return; fi
      if ! "$python" -c 'import hypothesis, pytest' 2>/dev/null; then
        echo "$python has no pytest, or no hypothesis"
        return
      fi
      timed "$((limit - 70))" "$python" -m pytest tests/cuda -q -p no:cacheprovider "$@"
      ;;
    split | train)
      timed "$((limit - 70))" "$python" -m "bench.$piece" "${options[@]}" "$@"
      ;;
    moe)
      timed "$((limit - 70))" "$python" -m bench.moe "${options[@]}" ${quick:---dtype bf16-weights bf16} "$@"
      ;;
    decode)
      timed "$((limit - 70))" "$python" -m bench.decode "${options[@]}" "$@"
      ;;
    plan)
      options+=(--rates "$out/$device.yaml")
      timed "$((limit / 3))" "$python" -m bench.plan --calibrate "${options[@]}" "$@"
      timed "$((limit * 5 / 9 - 5))" "$python" -m bench.plan "${options[@]}" "$@"
      ;;
    demo)
      local recipe=demo
      if [[ -n $quick ]]; then recipe=smoke; fi
      resumable "gpu_$recipe" train "recipes=$recipe" "$@"
      ;;
    experiment)
      local experiment=${EXPERIMENT-freesoft38}
      local name=${NAME:-$experiment}
      if [[ -z $name ]]; then echo "error: EXPERIMENT is empty; set NAME, of the sweep" >&2 && return 1; fi
      resumable "$name" sweep ${experiment:+"experiment=$experiment"} runtime.parallel_baselines=8 "$@"
      ;;
  esac
}

run_all() {
  local about=$out/gpu-$1 piece left code unfinished=() failed=()
  mkdir -p "$about"
  for piece in "${pieces[@]}"; do
    if [[ -e $about/$piece.txt ]]; then
      echo "$piece: done, in $about/$piece.txt"
    elif [[ -e $about/$piece.failed ]]; then
      failed+=("$piece")
    else
      unfinished+=("$piece")
    fi
  done
  for piece in "${unfinished[@]}" "${failed[@]}"; do
    left=$((limit - SECONDS))
    if ((left < least + 100)); then
      echo "$piece is next, and $left s are too few for it; the same command goes on"
      return
    fi
    echo "$piece: begins with $left s left"
    rm -f "$about/$piece.failed"
    code=0
    LIMIT=$left WHEELS=none bash bench/gpu.sh "$piece" >"$about/$piece.partial" 2>&1 || code=$?
    tail -n 25 "$about/$piece.partial"
    if ((code)); then
      mv "$about/$piece.partial" "$about/$piece.failed"
      local why="failed with exit code $code"
      if ((code == 124)); then why="ran out of time"; fi
      echo "$piece: $why, see $about/$piece.failed"
    elif [[ $(tail -n 1 "$about/$piece.partial") == "this piece ended in order"* ]]; then
      return
    else
      mv "$about/$piece.partial" "$about/$piece.txt"
    fi
  done
  if compgen -G "$about/*.failed" >/dev/null; then return 1; fi
  echo "all pieces are done, in $about"
}

if [[ $runtime == gpu ]] && ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
  echo "error: $python finds no torch with a CUDA device; nothing was done"
  exit 1
fi
wheels=()
for wheel in "${WHEELS:-wheels}"/*.whl; do
  if [[ $runtime == gpu && ${wheel##*/} == torch-* ]]; then
    echo "$wheel is left out: $python has a torch with CUDA, and this one would take its place"
  elif [[ -e $wheel ]]; then
    wheels+=("$wheel")
  fi
done
if ((${#wheels[@]})); then
  site=$(mktemp -d)
  trap 'rm -rf "$site"' EXIT
  "$python" -m pip install --quiet --no-index --no-deps --target "$site" "${wheels[@]}"
  export PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH}
fi
if [[ -n $piece ]]; then
  run_piece "$@"
else
  run_all "$("$python" -c "from bench.output import device_name, slug; print(slug(device_name('$device')))")"
fi
