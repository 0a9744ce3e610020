#!/usr/bin/env bash
# Runs all tests, the long ones too: first two at a time, then alone those that watch clocks. A failure of the first
# does not keep the second from running; at the end stand the totals of both, what failed, and the minutes.
# tests/run_full.sh [path ...]: by default every suite.
set -uo pipefail
cd "$(dirname "$0")/.."
suites=("$@")
((${#suites[@]})) || suites=(tests/system tests/parallel tests/cuda tests/golden tests/hostile tests/unit)
said=$(mktemp -d)
trap 'rm -rf "$said"' EXIT
status=0

phase() { # title, then pytest's options
  .venv/bin/python -m pytest --durations=100 --durations-min=5 "${@:2}" "${suites[@]}" | tee "$said/$1"
  local code=$?
  ((code == 0 || code == 5)) || status=1 # 5: none of these tests is of this kind
}

OMP_NUM_THREADS=1 phase 'two at a time' -m 'not quiet' --numprocesses 2 --no-loadscope-reorder
phase alone -m quiet

echo
echo 'make test-full'
for title in 'two at a time' alone; do
  grep -E '^(FAILED|ERROR) ' "$said/$title"
  echo "$title: $(tail -n 1 "$said/$title" | sed -E 's/^=+ //; s/ =+$//')"
done
echo "all together: $((SECONDS / 60)) min $((SECONDS % 60)) s"
exit $status
