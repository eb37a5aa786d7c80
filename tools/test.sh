#!/usr/bin/env bash
# All tests, or parts of them one after the other: lint unit integration gateway scenarios e2e pythons.
# What cannot run here is said; with CI=true leaving anything out is a failure.
# FURTHER=yes: with the tests that are marked `further` (`make test-all`), which show once more what another one shows.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON="${PYTHON:-python3}"
VENV=.venv
LOGS=.cache/test
parts=("$@")
left_out=()
# The last -m counts, and this one comes behind that of pyproject.toml.
[ "${FURTHER:-}" != yes ] || export PYTEST_ADDOPTS="-m 'further or not further' ${PYTEST_ADDOPTS:-}" MODELYARD_ALL_ARCHITECTURES=1

install_or_leave_out() {
  # $1: what cannot be run without the packages after it. On Debian and Ubuntu they are installed when we are root.
  local what=$1
  shift
  [ $# -gt 0 ] || return 0
  [ "${PACKAGES_ASKED:-}" != yes ] || { left_out+=("$what: $* could not be installed"); return 1; }
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    left_out+=("$what: install $*, or run as root on Debian or Ubuntu")
    return 1
  fi
  echo "== installing $*"
  if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null; }; then
    left_out+=("$what: $* could not be installed")
    return 1
  fi
}

system_packages() {
  # Programs that the tests call, beside Python.
  local missing=()
  command -v git >/dev/null || missing+=(git)
  command -v ps >/dev/null || missing+=(procps)
  command -v curl >/dev/null || missing+=(curl)
  command -v screen >/dev/null || missing+=(screen)
  ldconfig -p | grep -q "libnuma\.so\.1 " || missing+=(libnuma1)
  command -v g++ >/dev/null || missing+=(g++)
  # The RHEL family's package manager, into roots of the tests' own: Debian has it too.
  command -v dnf >/dev/null && [ -e /usr/lib/python3/dist-packages/dnf-plugins/versionlock.py ] || missing+=(dnf dnf-plugins-core)
  command -v createrepo_c >/dev/null || missing+=(createrepo-c)
  command -v rpmbuild >/dev/null || missing+=(rpm)
  install_or_leave_out "what needs ${missing[*]}" "${missing[@]}" || true
}

container_packages() {
  local missing=()
  # runc is named, because podman's first choice does not work with both kinds of cgroups at once.
  [ "${CONTAINER_ENGINE:-podman}" != podman ] || command -v podman >/dev/null || missing+=(podman runc netavark)
  command -v mmdebstrap >/dev/null || missing+=(mmdebstrap debian-archive-keyring)
  command -v ssh >/dev/null || missing+=(openssh-client)
  install_or_leave_out "the scenarios in containers" "${missing[@]}"
}

gateway_packages() {
  # The two programs that can stand in our gateway's place. Debian starts them when they are installed: here they stay off.
  local missing=() systemd=() program
  for program in haproxy nginx; do PATH="$PATH:/usr/sbin" command -v "$program" >/dev/null || missing+=("$program"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  [ ! -d /run/systemd/system ] || [ "$(id -u)" != 0 ] || systemd=("${missing[@]}")
  [ ${#systemd[@]} -eq 0 ] || systemctl --quiet mask "${systemd[@]}"
  RUNLEVEL=1 install_or_leave_out "the gateway's tests against ${missing[*]}" "${missing[@]}" || true
  if [ ${#systemd[@]} -gt 0 ]; then
    systemctl --quiet unmask "${systemd[@]}"
    systemctl --quiet disable "${systemd[@]}" || true  # not there, where the installation failed
  fi
}

step() {
  local began=$SECONDS name=$1
  shift
  echo "== $name"
  "$@"
  echo "== $name: passed in $((SECONDS - began)) s"
}

lint() {
  # The whole chain reads the project's own collection path; nothing is fetched.
  $VENV/bin/ruff check .
  $VENV/bin/ruff format --check .
  $VENV/bin/yamllint --strict .
  $VENV/bin/python tools/readme_variables.py --check
  PATH="$PWD/$VENV/bin:$PATH" $VENV/bin/ansible-lint --offline --strict --profile production -q
  $VENV/bin/mypy collections/ansible_collections/modelyard/core/plugins/module_utils \
    collections/ansible_collections/modelyard/core/plugins/plugin_utils \
    collections/ansible_collections/modelyard/core/plugins/action filter_plugins roles/gateway/files/modelyard_gateway src/modelyard
  for playbook in playbooks/*.yml; do
    $VENV/bin/ansible-playbook -i inventory/demo --syntax-check "$playbook" >/dev/null
  done
}

# Several tests at once, but no more than four: what they start needs cores too. The integration tests mostly wait for processes, so
# they are four on any machine; those of one file stay together, because they share what one of them has made.
at_once=(--numprocesses auto --maxprocesses 4)
waiting=(--numprocesses 4 --dist loadfile)
unit() { $VENV/bin/python -m pytest -q "${at_once[@]}" tests/unit; }

integration() { $VENV/bin/python -m pytest -q "${waiting[@]}" tests/integration; }

# Each kind of gateway has a test process of its own; they mostly wait.
gateway() { TEST_PORTS=20000 $VENV/bin/python -m pytest -q --numprocesses 4 --dist loadgroup tests/gateway; }

# Containers leave helper processes behind, which process 1 of some CI machines does not take care of.
scenarios() { $VENV/bin/python tools/reap.py tools/scenarios.sh; }

e2e() { $VENV/bin/python -m pytest -q -x tests/e2e; }

find_python() {
  # A working Python of that minor version: on PATH, or one that pyenv has but does not offer there.
  local candidate
  for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
    if "$candidate" -c 'import ensurepip' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
}

pythons() {
  # Ansible has two releases for the supported Pythons, one for 3.11 and one for the rest. So what meets Ansible, or runs in the control
  # node's or the engine's environment, is tested once more with the Python farthest from the one of .venv; FURTHER: all unit tests.
  local mine other farthest="" folder
  local paths=(tests/unit/{accept,gateway,report} tests/unit/test_{acceptance_action,actions,filters,intent_action,inventories,plugins}.py
    tests/unit/test_{preflight_report,roles,status_report,token_count,wheels}.py tests/integration/test_preflight.py)
  [ "${FURTHER:-}" != yes ] || paths=(tests/unit tests/integration/test_{preflight,refusals}.py)
  mine="$($VENV/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
  # The last one found counts: the newest beside 3.11, and 3.11 beside the others.
  for other in $([ "$mine" = 3.11 ] && echo 3.12 3.13 || echo 3.12 3.13 3.11); do
    [ "$other" = "$mine" ] || [ -z "$(find_python "$other")" ] || farthest="$other"
  done
  if [ -z "$farthest" ]; then
    echo "   No other supported Python is installed here; the tests run with $mine alone"
    return
  fi
  folder=".venv-$farthest"
  "$folder/bin/python" -m pip --version >/dev/null 2>&1 || "$(find_python "$farthest")" -m venv --clear "$folder"
  # Only what runs these tests; the linters and molecule are not needed here.
  "$folder/bin/python" -m pip --disable-pip-version-check --quiet --quiet install -c requirements/test.txt \
    -r requirements/control.txt aiohttp httptools hypothesis jsonschema prometheus-client pytest pytest-xdist uvloop
  TEST_EXAMPLES=10 "$folder/bin/python" -m pytest -q "${at_once[@]}" "${paths[@]}"
}

all() {
  # What computes and what waits for containers beside each other, and no more than that: tests that watch the clock want a processor.
  # Then the real engine, which wants the machine for itself. Nothing is installed by two at once, so packages come first; each part
  # says itself what it leaves out.
  gateway_packages
  container_packages || true
  left_out=()
  export PACKAGES_ASKED=yes
  $VENV/bin/python tools/lanes.py tools/test.sh "$LOGS" "lint unit integration pythons" "scenarios gateway"
  $VENV/bin/python tools/lanes.py tools/test.sh "$LOGS" e2e
}

make -s "$VENV/test" PYTHON="$PYTHON"
system_packages
if [ ${#parts[@]} = 0 ]; then
  all
  exit
fi
for part in "${parts[@]}"; do
  [ "$part" != gateway ] || gateway_packages
  if [ "$part" != scenarios ] || container_packages; then step "$part" "$part"; fi
done
if [ ${#left_out[@]} -gt 0 ]; then
  printf 'Left out: %s\n' "${left_out[@]}"
  [ "${CI:-}" != true ] || exit 1
fi
