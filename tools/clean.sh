#!/bin/sh
# Removes .venv and .cache, unless a service of the demo or of the tests still runs from there.
set -eu
cd "$(dirname "$0")/.."
for state in .cache/*/services/*/instance-*/run/state.json .cache/*/home/services/*/instance-*/run/state.json; do
  [ -f "$state" ] || continue
  # Keeper and leader: the keeper lives as long as anything of the engine does.
  for pid in $(sed -n 's/.*"pid": \([0-9]*\).*/\1/p' "$state"); do
    if [ -d "/proc/$pid" ] && ! grep -q '^State:[[:space:]]*Z' "/proc/$pid/status"; then
      echo "A service still runs (pid $pid, $state). Stop it first: make demo-stop" >&2
      exit 1
    fi
  done
done
rm -rf .venv .venv-3.* .cache .ansible .pytest_cache .mypy_cache .ruff_cache .hypothesis
