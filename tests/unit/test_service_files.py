"""From a plan to the files of its services."""

from __future__ import annotations

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import files, planner
from ansible_collections.modelyard.core.plugins.module_utils.process.by_hand import wishes
from deployed import host
from hypothesis import given
from hypothesis import strategies as st
from unit import worlds

INFO = {"instances": [0, 1, 2], "start": {"stagger_s": 2.0, "wave": 2}, "ready_timeout_s": 60}


def planned(**changes):
    return planner.plan(worlds.intent(worlds.service(**changes)), worlds.survey())["services"][0]


def test_what_the_plan_says_holds(tmp_path):
    service = planned()
    service["instances"][0]["session"] = "other"
    service.update(start={"stagger_s": 0.0, "wave": 8}, logs={"cap_mib": 1, "keep": 2})
    service["stop"]["memory_s"] = 5
    service["instances"][0]["devices"] = [{"index": 3, "uuid": "GPU-x", "bus_id": "b", "device_files": ["/dev/nvidia3"]}]
    made = files.of_service(service, host(tmp_path))
    assert made["service_file"]["start"] == {"stagger_s": 0.0, "wave": 8}
    assert made["service_file"]["stop"]["memory_s"] == 5
    assert made["instances"][0]["request"]["devices"][0]["uuid"] == "GPU-x"
    assert made["instances"][0]["request"]["session"] == "other"


def test_several_instances_have_names_with_numbers_and_scripts_of_their_own(tmp_path):
    made = files.of_service(planned(topology={"replicas": 2, "tensor_parallel_size": 2}), host(tmp_path))
    assert [i["request"]["session"] for i in made["instances"]] == ["tiny-qwen3-0", "tiny-qwen3-1"]
    assert [s["name"] for s in made["scripts"]["wanted"]] == ["start_cluster.sh", "stop_cluster.sh", "status_cluster.sh"]
    assert [s["name"] for s in made["scripts"]["stale"]] == ["start.sh", "stop.sh", "status.sh"]


@pytest.mark.parametrize(
    ("actions", "written", "started", "rolled", "waited", "removed"),
    [
        (("start", "keep"), [0, 1], [0], [], [0, 1], []),
        (("restart", "keep"), [0, 1], [], [[0]], [1], []),
        (("keep", "refused"), [0], [], [], [0], []),
        (("keep", "leave"), [0], [], [], [0], []),
        (("stop", "keep"), [1], [], [], [1], [0]),
    ],
)
def test_each_instance_has_its_own_action(tmp_path, actions, written, started, rolled, waited, removed):
    service = planned(topology={"replicas": 2, "tensor_parallel_size": 2})
    for instance, action in zip(service["instances"], actions, strict=True):
        instance.update(action=action, held={"port": instance["port"], "devices": []})
    made = files.of_service(service, host(tmp_path))
    assert [i["index"] for i in made["instances"]] == written
    assert [i["index"] for i in made["started"]] == started
    assert [[i["index"] for i in batch] for batch in made["rolled"]] == rolled
    assert (made["waited"], made["removed"]) == (waited, removed)
    assert len(made["client_env"]["MODELYARD_BASE_URLS"].split()) == len(made["service_file"]["instances"]) == 2 - len(removed)


@pytest.mark.parametrize(
    ("ports", "cards", "batches"),
    [
        ([8000, 8001, 8002, 8003], [0, 1, 2, 3], [[0], [1], [2], [3]]),
        ([9000, 9001, 9002, 9003], [4, 5, 6, 7], [[0], [1], [2], [3]]),
        ([7999, 8000, 8001, 8002], [0, 1, 2, 3], [[0, 1, 2, 3]]),  # each port was that of the instance before
        ([8000, 8001, 8002, 8003], [1, 0, 2, 3], [[0, 1], [2], [3]]),
        ([8000, 8001, 8002, 8003], [0, 3, 2, 1], [[0], [2], [1, 3]]),
    ],
)
def test_instances_that_take_over_ports_or_cards_from_each_other_are_restarted_together(tmp_path, ports, cards, batches):
    service = planned(topology={"replicas": 4, "tensor_parallel_size": 1})
    for index, instance in enumerate(service["instances"]):
        held = {"port": 8000 + index, "devices": [{"index": index, "uuid": f"GPU-{index}"}]}
        device = {"index": cards[index], "uuid": f"GPU-{cards[index]}"}
        instance.update(action="restart", held=held, port=ports[index], devices=[device])
    made = files.of_service(service, host(tmp_path))
    assert [[i["index"] for i in batch] for batch in made["rolled"]] == batches


@pytest.mark.parametrize(
    ("address", "shown"), [("0.0.0.0", "127.0.0.1"), ("::", "127.0.0.1"), ("10.0.0.1", "10.0.0.1"), ("::1", "[::1]")]
)
def test_clients_are_told_an_address_that_works(tmp_path, address, shown):
    service = planned(listen={"host": address})
    assert files.client_env(service, "/x")["OPENAI_BASE_URL"] == f"http://{shown}:8000/v1"


def test_wishes_that_are_true_already_change_nothing():
    request = {"index": 1, "digest": "d", "port": 8001, "launch": {"argv": ["v", "--port", "8001", "--enforce-eager"]}}
    wish, wrong = wishes.read({"BASE_PORT": "8000", "EAGER": "1", "N": ""}, INFO)
    assert wrong == []
    assert wishes.applied(request, wish) == request
    assert wish.stagger_s == 2.0
    changed = wishes.applied(request, wishes.read({"BASE_PORT": "9000", "EAGER": "0"}, INFO)[0])
    assert changed["words"] == ["--port", "9001", "--no-enforce-eager"]
    assert changed["port"] == 9001
    assert changed["launch"]["argv"] == ["v", "--port", "9001", "--no-enforce-eager"]
    assert changed["digest"] != request["digest"]
    assert request["launch"]["argv"] == ["v", "--port", "8001", "--enforce-eager"]


@given(st.dictionaries(st.sampled_from(sorted(wishes.VARIABLES)), st.text(max_size=8)))
def test_whatever_stands_in_the_environment_is_a_wish_or_is_named(environment):
    wish, wrong = wishes.read(environment, INFO)
    assert wish.wave >= 1
    assert wish.stagger_s >= 0
    assert wish.first is None or 1 <= wish.first <= 3
    for text in wrong:
        assert text.partition("=")[0] in environment
