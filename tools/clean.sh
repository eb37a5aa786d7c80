#!/bin/sh
# Removes .venv and .cache, unless a service of the demo or of the tests still runs from there.
set -eu
cd "$(dirname "$0")/.."
for state in .cache/*/services/*/instance-*/run/state.json; do
  [ -f "$state" ] || continue
  pid="$(sed -n '/"leader"/,/}/s/.*"pid": \([0-9]*\).*/\1/p' "$state")"
  if [ -n "$pid" ] && [ -d "/proc/$pid" ]; then
    echo "A service still runs (pid $pid, $state). Stop it first: make demo-stop" >&2
    exit 1
  fi
done
rm -rf .venv .venv-3.* .cache .ansible .pytest_cache .mypy_cache .ruff_cache .hypothesis
