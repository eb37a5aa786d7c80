"""Two single-rank instances on two ports with the real engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from e2e_site import get, make_site, torn_down
from harness import Site, session_of

pytestmark = pytest.mark.e2e
NAME = "tiny-2xtp1"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    yield from torn_down(make_site(tmp_path_factory.mktemp("two"), NAME, replicas=2, tp=1))


def test_two_instances_answer_on_two_ports_with_one_core_each(site: Site) -> None:
    run = site.play("deploy")
    assert run.rc == 0, run.output[-4000:]
    base = int(site.services[0]["listen"]["base_port"])
    for index in (0, 1):
        assert f"pass  {NAME}/{index} serial: 5 of 5" in run.output
        body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
        status, reply = get(base + index, "/v1/chat/completions", body=body)
        assert (status, reply["usage"]["completion_tokens"]) == (200, 4)
        comms = [p["comm"] for p in session_of(site.state(NAME, index)["keeper"]["pid"])]
        assert sum(c.startswith("VLLM::Worker") for c in comms) == 1
    binds = [site.state(NAME, i)["request"]["launch"]["environment"]["VLLM_CPU_OMP_THREADS_BIND"] for i in (0, 1)]
    assert len(set(binds)) == 2


def test_a_second_deploy_changes_nothing(site: Site) -> None:
    leaders = [site.leader(NAME, i) for i in (0, 1)]
    run = site.play("deploy")
    assert (run.rc, run.changed) == (0, 0), run.output[-3000:]
    assert [site.leader(NAME, i) for i in (0, 1)] == leaders


def test_one_instance_less_needs_permission(site: Site) -> None:
    site.services[0]["topology"]["replicas"] = 1
    run = site.play("deploy")
    assert run.rc != 0
    assert "instance 1: running -> gone" in run.output
    site.services[0]["topology"]["replicas"] = 2


def test_teardown_ends_both(site: Site) -> None:
    keepers = [site.state(NAME, i)["keeper"]["pid"] for i in (0, 1)]
    run = site.play("teardown")
    assert run.rc == 0, run.output[-3000:]
    assert [session_of(k) for k in keepers] == [[], []]
