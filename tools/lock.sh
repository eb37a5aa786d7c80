#!/bin/sh
# Makes the lock files again from pyproject.toml and the runtimes' *.in files. For developers; needs uv (pip install uv).
# The resolver's answer is kept as it is, but for packages of other operating systems.
set -eu
cd "$(dirname "$0")/.."
uv="${UV:-uv}"
runtimes=collections/ansible_collections/modelyard/core/plugins/module_utils/plan/data/runtimes
compile() { "$uv" pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate "$@"; }

compile pyproject.toml --group control -o requirements/control.txt
compile pyproject.toml --group control --group test -o requirements/test.txt
for input in "$runtimes"/*.in; do
  name="${input%.in}"
  # FIND_LINKS: a folder with the CPU build of torch, where PyTorch's index cannot be reached.
  compile "$input" --override "$name.exclude" ${FIND_LINKS:+--find-links "$FIND_LINKS"} -o "$name.txt.new"
  grep -vE "sys_platform == '(never|win32|emscripten)'|^--" "$name.txt.new" > "$name.txt"
  rm "$name.txt.new"
done
