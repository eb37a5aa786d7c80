#!/bin/sh
# Makes the lock files again from pyproject.toml and the runtimes' *.in files. For developers; needs uv (pip install uv).
# The resolver's answer is kept as it is, but for packages of other operating systems. With names of runtimes only those are made.
set -eu
cd "$(dirname "$0")/.."
uv="${UV:-uv}"
runtimes=collections/ansible_collections/modelyard/core/plugins/module_utils/plan/data/runtimes
compile() { "$uv" pip compile --quiet --universal --no-header --no-annotate "$@"; }

if [ $# = 0 ]; then
  compile --python-version 3.11 pyproject.toml --group control -o requirements/control.txt
  compile --python-version 3.11 pyproject.toml --group control --group test -o requirements/test.txt
  for input in "$runtimes"/*.in; do set -- "$@" "$(basename "$input" .in)"; done
fi
for runtime in "$@"; do
  name="$runtimes/$runtime"
  # The first Python of the runtime; the resolver sees to the later ones. Several runtimes can share a lock.
  facts="$name.yml"
  [ -f "$facts" ] || facts=$(grep -l "^lock: $runtime\$" "$runtimes"/*.yml | head -n 1)
  oldest=$(sed -n 's/^python: \["\([0-9.]*\)".*/\1/p' "$facts")
  # A package that comes as a vendor's file, while what it asks for is locked.
  not_locked=$(sed -n 's/^# Not locked: //p' "$name.exclude" 2>/dev/null || true)
  override=""
  [ ! -f "$name.exclude" ] || override="--override=$name.exclude"
  # FIND_LINKS: a folder with the CPU build of torch, where PyTorch's index cannot be reached.
  compile --python-version "$oldest" "$name.in" ${override:+"$override"} ${FIND_LINKS:+--find-links "$FIND_LINKS"} -o "$name.txt.new"
  grep -vE "sys_platform == '(never|win32|emscripten)'|^--${not_locked:+|^$not_locked==}" "$name.txt.new" > "$name.txt"
  rm "$name.txt.new"
done
