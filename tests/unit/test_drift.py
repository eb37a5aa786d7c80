"""What has drifted since a deploy: nothing where nothing has changed, and one line for each change."""

from __future__ import annotations

import copy
import json

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import drift, manifest, planner, status_text
from hypothesis import given, settings
from hypothesis import strategies as st
from unit import worlds
from unit.test_manifest import HOST_ADDS

NOW = 1764410400.0
SOFTWARE = {key: HOST_ADDS[key] for key in ("python", "vllm", "torch", "packages")}
STAMP = {"at": "2026-11-29T10:00:00Z", "by": "ann", "from": "control", "playbook": "deploy.yml", "as_user": "llm"}
FILES = {"start.sh": "aa", "instance-0/launch.sh": "bb", "instance-1/launch.sh": "cc"}
UNIT = {"name": "modelyard-two-0.service", "state": "active", "scope": "system"}


def devices(plan, survey):
    """What the planner says of the cards of each instance."""
    for service in plan["services"]:
        cards = {card["index"]: card for card in survey["cards"][service["backend"]]}
        for instance in service["instances"]:
            indexes = [index for rank in instance["cards"] for index in rank]
            instance["session"] = f"{service['name']}-{instance['index']}"
            instance["devices"] = [
                {"index": i, "uuid": cards[i].get("uuid", ""), "bus_id": cards[i].get("bus_id", ""), "device_files": []}
                for i in indexes
            ]
    return plan


def gpu_world():
    """(wish, survey) of two instances on a card each, deployed, running and accepted."""
    wish = worlds.gpu_service(name="two", topology={"replicas": 2, "tensor_parallel_size": 1}, supervisor="systemd")
    return world(wish, worlds.nvidia())


def core_world():
    wish = worlds.service(name="two", topology={"replicas": 2, "tensor_parallel_size": 1}, key_hash="0f1e")
    return world(wish, worlds.survey())


def world(wish, seen):
    plan = devices(planner.plan(worlds.intent(wish), seen), seen)
    (service,) = plan["services"]
    known = manifest.merged(None, manifest.manifest(service, plan, seen, "0.2.0"))
    known["versions"].update(HOST_ADDS)
    whole = {**known, "files": dict(FILES), "deployed": dict(STAMP)}
    entry = {
        "manifest": whole,
        "has_manifest": True,
        "files": dict(FILES),
        "software": dict(SOFTWARE),
        "fingerprint": service["model"]["fingerprint"],
        "accepted_at": NOW - 7200,
        "needs_admin": None,
    }
    running = worlds.running(plan)
    units = [{**UNIT, "name": f"modelyard-two-{index}.service"} for index in (0, 1)] if wish["supervisor"] == "systemd" else []
    survey = {**copy.deepcopy(seen), "services": running, "deployed": {"two": copy.deepcopy(entry)}, "units": units}
    for instance in survey["services"]["two"]["instances"]:
        instance["started_at"] = NOW - 7300
    return wish, survey


def planned(wish, survey):
    return devices(planner.plan(worlds.intent(wish), survey), survey)


def lines(survey, plan=None):
    """(kind, instance, what) of every line of a host, in order."""
    found = drift.host(survey, plan)
    every = [item for service in found["services"] for item in service["drift"]] + found["drift"]
    assert all(item["what"] and item["do"] and set(item) == {"kind", "instance", "what", "do"} for item in every)
    return [(item["kind"], item["instance"], item["what"]) for item in every]


@pytest.mark.parametrize("make", [gpu_world, core_world])
def test_where_nothing_has_changed_there_is_no_drift(make):
    wish, survey = make()
    assert lines(survey) == []
    assert lines(survey, planned(wish, survey)) == []


# -- one change, one line ---------------------------------------------------------------------------------------------------


def change(path, value):
    """A change of the survey at `path` (keys and indexes); a function gets the old value."""

    def apply(survey):
        place = survey
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value(place[path[-1]]) if callable(value) else value

    return apply


def both(*changes):
    def apply(survey):
        for one in changes:
            one(survey)

    return apply


ENTRY = ("deployed", "two")
SEEN = ("services", "two")
LOST = change((*SEEN, "accepted"), False)
ENDED = {"at": 1764400100.0, "code": 1, "signal": None}
CARD1 = ("cards", "nvidia", 1)
NEEDS = {"written_at": NOW - 600, "why": "zombie"}


def ended(index, how):
    return both(change((*SEEN, "instances", index, "alive"), False), change((*SEEN, "instances", index, "ended"), how), LOST)


CHANGES = {
    "an instance ended with a code": (ended(1, ENDED), "instance", 1, "2025-11-29 07:08 UTC with exit code 1"),
    "killed": (ended(0, {**ENDED, "code": None, "signal": 9}), "instance", 0, "with signal 9"),
    "without a word": (ended(0, None), "instance", 0, "nobody wrote down how"),
    "an instance whose start is not known": (
        both(change((*SEEN, "instances"), lambda found: found[:1]), LOST), "instance", 1, "no start of it is known",
    ),
    "it does not answer": (both(change((*SEEN, "instances", 0, "ready"), False), LOST), "instance", 0, "does not answer /health"),
    "started by hand with other words": (
        both(
            change((*SEEN, "instances", 0, "launch", "argv"), lambda words: [*words, "--enforce-eager"]),
            change((*SEEN, "instances", 0, "digest"), "other"), LOST,
        ),
        "parameters", 0, "--enforce-eager: (not set) -> on",
    ),
    "another environment": (
        both(change((*SEEN, "instances", 1, "launch", "environment", "NEW"), "1") , LOST),
        "parameters", 1, "environment NEW: (not set) -> 1",
    ),
    "another key": (both(change((*SEEN, "instances", 1, "digest"), "other"), LOST), "parameters", 1, "API key or form"),
    "leftovers": (
        both(change((*SEEN, "leftovers"), [{"pid": 9, "comm": "VLLM::Worker", "state": "S"}]), LOST),
        "processes", None, "9 VLLM::Worker (state S)",
    ),
    "another supervisor": (change((*SEEN, "instances", 0, "supervisor"), "plain"), "supervisor", 0, "plain, deployed for"),
    "a unit failed": (change(("units", 0, "state"), "failed"), "supervisor", 0, "its unit is failed"),
    "a unit is gone": (change(("units",), lambda units: units[1:]), "supervisor", 0, "its unit is unknown to systemd"),
    "a script was edited": (change((*ENTRY, "files", "instance-1/launch.sh"), "zz"), "file", 1, "launch.sh was changed"),
    "a file of the service": (change((*ENTRY, "files", "start.sh"), "zz"), "file", None, "start.sh was changed"),
    "a file is gone": (change((*ENTRY, "files"), lambda files: {**files, "start.sh": ""}), "file", None, "start.sh is gone"),
    "another vLLM": (change((*ENTRY, "software", "vllm"), "0.33.0"), "runtime", None, "vllm 0.32.0 -> 0.33.0"),
    "another package": (change((*ENTRY, "software", "packages"), "cd34"), "runtime", None, "packages were installed"),
    "no runtime": (change((*ENTRY, "software"), dict.fromkeys(SOFTWARE, "")), "runtime", None, "is not there any more"),
    "other model files": (change((*ENTRY, "fingerprint"), "another"), "model", None, "are others than at the deploy"),
    "no model": (change((*ENTRY, "fingerprint"), ""), "model", None, "gone"),
    "a card has another number": (change((*CARD1, "index"), 5), "card", 1, "has the number 5 now"),
    "a card does not answer": (
        both(change((*CARD1, "index"), None), change((*CARD1, "uuid"), "")), "card", 1, "does not answer",
    ),
    "a card vanished": (change(("cards", "nvidia"), lambda cards: cards[:1]), "card", 1, "is not there any more"),
    "the tool is silent": (
        change(("accelerators", "nvidia", "tool"), {"path": "", "state": "hangs", "seconds": 20, "said": "it hangs"}),
        "card", None, "nvidia-smi does not tell: it hangs",
    ),
    "another driver": (change(("accelerators", "nvidia", "driver", "loaded"), "580.126.09"), "driver", None, "580.126.09"),
    "another kernel": (change(("host", "kernel"), "6.1.1"), "host", None, "the kernel is 6.1.1"),
    "memory that nobody holds": (change((*CARD1, "memory_used_mib"), 30004), "memory", None, "30004 MiB of 49140 MiB are in use"),
    "the acceptance is lost": (LOST, "acceptance", None, "is lost: other processes run now"),
    "never accepted": (both(LOST, change((*ENTRY, "accepted_at"), None)), "acceptance", None, "never accepted"),
    "a stale needs_admin": (change((*ENTRY, "needs_admin"), NEEDS), "needs_admin", None, "but it runs and is accepted"),
    "no manifest": (
        both(change((*ENTRY, "manifest"), None), change((*ENTRY, "has_manifest"), False)),
        "manifest", None, "there is no manifest",
    ),
    "a broken manifest": (change((*ENTRY, "manifest"), None), "manifest", None, "it holds no JSON object"),
    "a manifest of an earlier version": (change((*ENTRY, "manifest", "schema"), 1), "manifest", None, "its schema is 1, not 2"),
}  # fmt: skip


@pytest.mark.parametrize(("apply", "kind", "instance", "words"), CHANGES.values(), ids=CHANGES)
def test_a_change_of_the_host_gives_one_line(apply, kind, instance, words):
    _, survey = gpu_world()
    apply(survey)
    ((found, where, what),) = lines(survey)
    assert (found, where) == (kind, instance)
    assert words in what


def test_a_running_instance_that_was_never_deployed_is_told():
    _, survey = gpu_world()
    survey["deployed"]["two"]["manifest"]["instances"].pop()
    survey["units"].pop()
    assert [(kind, index) for kind, index, _ in lines(survey)] == [("instance", 1)]


def test_a_waiting_needs_admin_is_told_beside_what_is_wrong():
    _, survey = gpu_world()
    survey["deployed"]["two"]["needs_admin"] = NEEDS
    ended(1, ENDED)(survey)
    (_, (kind, _, what)) = lines(survey)
    assert kind == "needs_admin"
    assert "runs and is accepted" not in what


def test_what_was_handed_over_is_told_once_with_the_report_to_read():
    _, survey = gpu_world()
    ended(1, ENDED)(survey)
    survey["deployed"]["two"]["needs_admin"] = {**NEEDS, "report": "/opt/modelyard/evidence/x"}
    left = [{"pid": pid, "comm": "VLLM::Worker", "state": "D"} for pid in (77, 78)]
    survey["services"]["two"].update(leftovers=left, needs_admin={"left": [77, 78]})
    found = [(kind, what) for kind, _, what in lines(survey)]
    assert [kind for kind, _ in found] == ["instance", "needs_admin"]
    assert [item["do"] for item in drift.host(survey)["services"][0]["drift"]][-1].startswith(
        "see /opt/modelyard/evidence/x/report.txt"
    )
    survey["services"]["two"]["needs_admin"]["left"] = [77]
    last = [what for kind, _, what in lines(survey) if kind == "processes"]
    assert last == ["processes live on without their API server: 78 VLLM::Worker (state D)"]


def test_memory_on_a_card_of_no_service_is_a_line_of_the_host():
    _, survey = gpu_world()
    extra = worlds.card(2, memory_used_mib=20000)
    survey["cards"]["nvidia"].append(extra)
    found = drift.host(survey)
    assert [item["kind"] for item in found["drift"]] == ["memory"]
    assert [item["drift"] for item in found["services"]] == [[]]


def test_a_holder_explains_memory():
    _, survey = gpu_world()
    survey["cards"]["nvidia"][1].update(memory_used_mib=30004, holders=[501])
    survey["processes"]["501"] = worlds.process(501, user="llm", comm="VLLM::Worker")
    assert lines(survey) == []


SINGLE = [name for name in CHANGES if name not in ("no manifest", "a broken manifest", "a manifest of an earlier version")]
#: Changes that say something of an instance or the whole service after which an acceptance, or a stale file, is not told.
QUIET = ("the acceptance is lost", "never accepted", "a stale needs_admin", "the tool is silent")


@given(st.lists(st.sampled_from([name for name in SINGLE if name not in QUIET]), unique=True, max_size=3))
def test_of_several_changes_none_hides_another_kind(names):
    _, survey = gpu_world()
    wanted = set()
    for name in names:
        apply, kind, instance, _ = CHANGES[name]
        try:
            apply(survey)
        except (IndexError, KeyError):  # an earlier change took away what this one changes
            return
        wanted.add((kind, instance))
    found = {(kind, instance) for kind, instance, _ in lines(survey)}
    ended_ones = {instance for kind, instance in wanted if kind == "instance"}
    # Of an instance that does not run it is not known how it would run; a card that is not there has no memory.
    hidden = {(kind, i) for kind, i in wanted if i in ended_ones and kind in ("parameters", "supervisor")}
    hidden |= {(kind, i) for kind, i in wanted if kind == "memory" and ("card", 1) in wanted}
    same = [name for name in names if CHANGES[name][1] in ("parameters", "instance", "card", "supervisor")]
    assert wanted - hidden <= found or len(same) > 1
    assert bool(names) == bool(found)


# -- what the inventory wants otherwise ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        ({"engine": {"max_model_len": 8192}}, [("inventory", 0, "--max-model-len: 4096 -> 8192"), ("inventory", 1, "8192")]),
        ({"key_hash": "beef"}, [("inventory", 0, "API key"), ("inventory", 1, "API key")]),
        ({"topology": {"replicas": 1}}, [("inventory", 1, "does not want it any more")]),
        ({"topology": {"replicas": 3}}, [("inventory", 2, "was not deployed")]),
    ],
)
def test_what_the_inventory_wants_otherwise_is_told_by_instance(wish, expected):
    service, survey = core_world()
    base = {**service, "environment": {"VLLM_CPU_OMP_THREADS_BIND": "x"}} if "topology" in wish else service
    plan = planned(worlds.merged(base, wish), survey)
    if "topology" in wish:  # another number of instances shares the cores otherwise; that is not looked at here
        for instance in plan["services"][0]["instances"][:2]:
            known = survey["deployed"]["two"]["manifest"]["instances"][instance["index"]]
            instance.update(environment=known["environment"], digest=known["digest"])
    found = lines(survey, plan)
    assert [(kind, index) for kind, index, _ in found] == [(kind, index) for kind, index, _ in expected]
    assert all(words in what for (_, _, what), (_, _, words) in zip(found, expected, strict=True))


def test_a_new_model_is_told_once_and_not_as_a_wish_too():
    wish, survey = core_world()
    survey["models"][worlds.MODEL]["files"]["model.safetensors"] += 1
    survey["deployed"]["two"]["fingerprint"] = "another"
    assert [(kind, index) for kind, index, _ in lines(survey, planned(wish, survey))] == [("model", None)]


def test_a_service_that_the_inventory_forgot_and_one_that_is_not_here():
    _, survey = core_world()
    plan = planner.plan(worlds.intent(worlds.service(name="other", listen={"base_port": 9000})), survey)
    assert [(kind, what) for kind, _, what in lines(survey, plan)] == [
        ("inventory", "the inventory does not name it any more"),
        ("inventory", "the inventory wants the service other; nothing of it is here"),
    ]
    assert lines(survey, None) == []


@pytest.mark.parametrize("value", [None, 5, "x", [], {}])
@pytest.mark.parametrize("key", ["schema", "runtime", "model", "versions", "files", "baseline", "deployed", "instances"])
def test_garbage_in_a_manifest_is_told_and_breaks_nothing(key, value):
    _, survey = gpu_world()
    survey["deployed"]["two"]["manifest"][key] = value
    found = drift.host(survey)
    assert found["services"][0]["name"] == "two"
    assert status_text.report({"box": {**found, "problem": ""}}, NOW)


def places(value, path=()):
    """Every path below a nested structure."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in items for place in places(inner, (*path, key)))]


GARBAGE = st.sampled_from([None, 5, -1.5, True, "x", "", [], {}, [None], {"index": "x"}, [{"index": 0}]])


@settings(max_examples=200)
@given(st.data())
def test_whatever_people_make_of_a_manifest_the_status_goes_on(data):
    make = data.draw(st.sampled_from([gpu_world, core_world]))
    wish, survey = make()
    path = data.draw(st.sampled_from([p for p in places(survey["deployed"]["two"]["manifest"]) if p]))
    change((*ENTRY, "manifest", *path), data.draw(GARBAGE))(survey)
    found = drift.host(survey, planned(wish, survey))
    assert [service["name"] for service in found["services"]] == ["two"]
    assert json.loads(json.dumps(found)) == found
    assert status_text.report({"box": {**found, "problem": ""}}, NOW)


@given(
    replicas=st.integers(1, 4),
    engine=st.dictionaries(st.sampled_from(["max_model_len", "max_num_seqs", "enforce_eager"]), st.sampled_from([True, 256])),
    environment=st.dictionaries(st.sampled_from(["A", "B_C"]), st.sampled_from(["", "1", "two words"])),
    key=st.sampled_from(["", "0f1e"]),
    on_cards=st.booleans(),
)
def test_whatever_was_deployed_an_unchanged_host_has_no_drift(replicas, engine, environment, key, on_cards):
    make, seen = (
        (worlds.gpu_service, worlds.nvidia(*map(worlds.card, range(4)))) if on_cards else (worlds.service, worlds.survey())
    )
    topology = {"replicas": replicas, "tensor_parallel_size": 1}
    base = make(name="two", topology=topology, environment=environment, key_hash=key, cards=["all"])
    wish, survey = world({**base, "engine": {k: v for k, v in engine.items() if k != "enforce_eager" or v is True}}, seen)
    assert lines(survey) == []
    assert lines(survey, planned(wish, survey)) == []


# -- text --------------------------------------------------------------------------------------------------------------------


def report(survey, plan=None, **hosts):
    return status_text.report({"box": {**drift.host(survey, plan), "problem": ""}, **hosts}, NOW)


def test_a_clean_host_in_words():
    _, survey = gpu_world()
    shown = report(survey).splitlines()
    assert shown[0] == "Status of 1 host(s): 0 line(s) of drift"
    assert shown[2].split()[:5] == ["box", "two/0", "runs", "8000", "500"]
    assert "2 h ago" in shown[2]
    assert shown[2].endswith("-")
    assert len(shown) == 4


def test_each_line_of_drift_says_where_what_and_what_next():
    _, survey = gpu_world()
    ended(1, ENDED)(survey)
    survey["host"]["kernel"] = "6.1.1"
    shown = report(survey)
    assert shown.startswith("Status of 1 host(s): 2 line(s) of drift\n")
    assert "\n  instance  box:two/1\n      it does not run: it ended at " in shown
    assert "\n  host  box:two\n      the kernel is 6.1.1; at the deploy it was 6.1.0\n      -> " in shown


def test_hosts_without_services_and_hosts_that_were_not_looked_at_are_in_the_table():
    nothing = {"services": [], "drift": [], "problem": ""}
    away = {"services": [], "drift": [], "problem": "PF-UNREACHABLE away: no route"}
    shown = status_text.report({"empty": nothing, "away": away}, NOW)
    assert shown.startswith("Status of 2 host(s): 0 line(s) of drift; not looked at: away\n")
    assert "nothing is deployed" in shown
    assert "PF-UNREACHABLE away: no route" in shown


AGES = [(None, "never"), (3, "3 s ago"), (125, "2 min ago"), (7300, "2 h ago"), (3 * 86400, "3 d ago"), (-5, "0 s ago")]


@pytest.mark.parametrize(("seconds", "words"), AGES)
def test_an_age_is_told_in_the_unit_that_fits(seconds, words):
    assert status_text.age(None if seconds is None else NOW - seconds, NOW) == words


def test_the_status_is_plain_data():
    _, survey = gpu_world()
    found = drift.host(survey)
    assert json.loads(json.dumps(found)) == found
