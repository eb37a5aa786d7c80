"""One case and more for each finding about cards, drivers, processes and the host: joined to CASES of test_findings.py.

id, what finds it, and the whole finding: what was found, where, and what the admin can do.
"""

from __future__ import annotations

from typing import Any, Callable

from ansible.errors import AnsibleConnectionFailure
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.plugins.loader import connection_loader
from ansible.template import Templar
from ansible_collections.modelyard.core.plugins.action import survey_host
from ansible_collections.modelyard.core.plugins.module_utils.judge import card_causes, card_report
from ansible_collections.modelyard.core.plugins.module_utils.plan import card_test_request, diagnose, planner, recovery, reset
from ansible_collections.modelyard.core.plugins.module_utils.plan.checkpoint import files as checkpoint_files
from unit import worlds

Findings = list[dict[str, str]]
GIB_30 = 30000


def acted(plugin: Any, args: dict[str, Any], variables: dict[str, Any]) -> Any:
    """The action plugin `plugin` of a task with these arguments, ready to run with `.run(None, variables)`."""
    task, loader, context = Task(), DataLoader(), PlayContext()
    task.args = args
    return plugin.ActionModule(
        task=task,
        connection=connection_loader.get("local", context, new_stdin=None),
        play_context=context,
        loader=loader,
        templar=Templar(loader, variables=variables),
        shared_loader_obj=None,
    )


def supervised(**seen: Any) -> dict[str, Any]:
    """A host with this in the survey's `supervisors`."""
    return worlds.survey(supervisors={"sessions": [], **seen})


def own_manager(**changes: Any) -> dict[str, Any]:
    """A user's own systemd that can be used."""
    return {"running": True, "problem": "", "lingers": True, "user": "ops", "units": {}, **changes}


def found(survey: dict[str, Any], *services: dict[str, Any], **wish: Any) -> Findings:
    """Findings of a plan for these services; without any, of a host that the inventory wants nothing of."""
    wanted = {**worlds.intent(*services, **wish), "services": list(services)}
    plan: dict[str, Any] = planner.plan(wanted, survey)
    return plan["findings"]


def of_gpus(survey: dict[str, Any], **wish: Any) -> Findings:
    """Findings of a plan for the service over two NVIDIA cards."""
    return found(survey, worlds.gpu_service(), **wish)


def card(**changes: Any) -> dict[str, Any]:
    """Two NVIDIA cards, of which the second is changed."""
    return worlds.nvidia(worlds.card(0), worlds.card(1, **changes))


def seen(**changes: Any) -> dict[str, Any]:
    """Two NVIDIA cards; `changes` to what is known about their backend."""
    return worlds.nvidia(accelerators={"nvidia": changes})


def told(*processes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The survey's table of processes."""
    return {str(process["pid"]): process for process in processes}


def on_card_1(*processes: dict[str, Any], memory_mib: int | None = GIB_30, **more: Any) -> dict[str, Any]:
    """The vendor's tool names these processes on card 1, each with this memory."""
    rows = [{"pid": process["pid"], "name": "python", "memory_mib": memory_mib} for process in processes]
    survey = card(processes=rows, memory_used_mib=4 + len(rows) * (memory_mib or 0))
    return worlds.merged(survey, {"accelerators": {"nvidia": {"process_list": "listed"}}, "processes": told(*processes), **more})


def surveyed(**methods: Any) -> Findings:
    """What the action survey_host refuses with on host box, where `methods` of the action come to nothing good."""
    variables = {"inventory_hostname": "box"}
    action = acted(survey_host, {"intent": worlds.intent(show=False)}, variables)
    for name, method in methods.items():
        setattr(action, name, method)
    result = action.run(None, variables)
    assert result["failed"] is True
    findings: Findings = result["findings"]
    return findings


def about(id: str, findings: Findings) -> Findings:
    """Those of one id among others that belong to it."""
    return [item for item in findings if item["id"] == id]


def unreachable() -> Findings:
    """Of a host that ssh does not reach."""

    def refuse(command: str) -> dict[str, Any]:
        raise AnsibleConnectionFailure("Failed to connect to the host via ssh:\nConnection timed out")

    return surveyed(_low_level_execute_command=refuse)


def broken() -> Findings:
    """Of a host on which the module does not come to its end."""
    end = {"failed": True, "msg": "Module result deserialization failed", "module_stderr": "Traceback: no space left on device\n"}
    return surveyed(_low_level_execute_command=lambda command: {"rc": 127}, _execute_module=lambda *words, **named: end)


def handed_over(left: list[int] | None = None, **changes: Any) -> dict[str, Any]:
    """What the survey says of a service whose last stop went to an admin because of card 1."""
    entry = {"backend": "nvidia", "index": 1, "uuid": worlds.card(1)["uuid"], "bus_id": "", "idle_mib": 4, "used_mib": 30004}
    known = {"at": "2026-11-29T10:00:00Z", "cards": [entry], "processes": [], "report": "/opt/modelyard/evidence/x"}
    seen = {"instances": [], "leftovers": [], "suspects": [], "accepted": False, "known": True, "pids": []}
    return {"services": {"gone": {**seen, "needs_admin": {**known, "left": left or [], **changes}}}}


def tested(cards: list[dict[str, Any]], groups: list[dict[str, Any]]) -> Findings:
    """What the tensor test of the service over two NVIDIA cards says; its first card is well."""
    survey = worlds.nvidia()
    service = planner.plan(worlds.intent(worlds.gpu_service()), survey)["services"][0]
    request = card_test_request.request(service, survey["cards"])
    findings, _ = card_report.report(request, {"cards": cards, "groups": groups}, "box")
    return findings


def answer(**changes: Any) -> dict[str, Any]:
    """What the program that tests one card said."""
    base = {"count": 1, "name": "NVIDIA GeForce RTX 4090", "uuid": "", "torch": "2.13.0", "free_mib": 48000, "total_mib": 49140}
    return {**base, "deviation": {"float32": 1e-7, "float16": 1e-4}, **changes}


def ran(said: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A process of the tensor test that came to its end."""
    base = {"state": "passed", "rc": 0, "signal": None, "stage": "multiply", "answer": said, "error": {}, "said": []}
    return {**base, "seconds": 4.0, "pid_left": {}, "holders": [], **more}


EVE = worlds.process(4711)
BARE = {"command": ""}
ENDED = worlds.process(372858, state="Z", comm="VLLM::Worker_TP", user="ops", threads=[], **BARE)
HALF_ENDED = worlds.process(
    372858,
    state="Z",
    comm="VLLM::Worker_TP",
    user="ops",
    threads=[{"tid": 372901, "state": "D", "comm": "python"}, {"tid": 372858, "state": "Z", "comm": "VLLM::Worker_TP"}],
    **BARE,
)
HUNG = worlds.process(77, state="D", stack=["os_acquire_rwlock_write", "_nv000001rm", "nvidia_ioctl", "x64_sys_ioctl", "do"])
RESTING = worlds.noted(1, "0000:02:00.0", memory_mib=400)
UUID_1 = worlds.card(1)["uuid"]
XID = "[  812.1] NVRM: Xid (PCI:0000:02:00): 79, pid=372858, GPU has fallen off the bus."
KILLED = "[ 9000.2] Out of memory: Killed process 9 (python)"
ONE_RANK = {"replicas": 1, "tensor_parallel_size": 1}
REBOOT = "After asking everybody who uses the host, an admin ends the users of the cards and reloads the driver, or reboots"
RESET = "when nobody uses it: an admin resets that one card (as root), or reboots. Nothing was reset"
ZOMBIE_DO = (
    "keep the kernel log and look again in a minute; if it stays, an admin resets the card, reloads the driver or reboots, after "
    "asking everybody who uses the host"
)
ENDED_BELOW_BOB = {**ENDED, "ppid": 50}
BOB = worlds.process(50, comm="sh", command="sh run.sh", user="bob")
WATCH = "watch it: the kernel log and the tensor test say more"

REACHING: list[tuple[str, Callable[[], Findings], str, str, str]] = [
    (
        "PF-UNREACHABLE",
        unreachable,
        "box",
        "Failed to connect to the host via ssh: Connection timed out",
        "see that ssh reaches it with the user and key of the inventory: "
        "ansible -i INVENTORY HOST -m ansible.builtin.raw -a true",
    ),
    (
        "PF-SURVEY-FAILED",
        broken,
        "box",
        "the survey did not come to its end: Module result deserialization failed / Traceback: no space left on device",
        "it is not known what is on this host. Run again with -vvv; if it stays, it is a defect of this project: report the text",
    ),
    (
        "PL-RUNTIME-NONE",
        lambda: found(worlds.nvidia(), worlds.gpu_service(runtime_path="")),
        "modelyard_services[qwen3-14b-32k].runtime",
        "no runtime is chosen for the backend nvidia",
        "name a Python environment with vLLM 0.32.0 that is on the host with modelyard_services[qwen3-14b-32k].runtime_path, "
        "or set modelyard_services[qwen3-14b-32k].runtime to vllm-cuda-0.11.2 or vllm-cuda-0.17.1 or vllm-cuda-0.33.0",
    ),
    (
        "PL-BACKEND",
        lambda: found(worlds.survey(), worlds.gpu_service()),
        "box",
        "there is no card of the backend nvidia: none on the bus, no driver, no nvidia-smi",
        "correct the backend of the service, or look whether the cards are seated and switched on in the firmware",
    ),
    (
        "PL-CARDS",
        lambda: found(worlds.nvidia(), worlds.gpu_service(topology={"tensor_parallel_size": 4})),
        "modelyard_services[qwen3-14b-32k].topology",
        "1 x tensor_parallel_size 4 needs 4 GPU(s), 2 given (0, 1)",
        "lower tensor_parallel_size or replicas to fit 2, or give more under cards",
    ),
    (
        "PL-REPLICAS-FEWER",
        lambda: about(
            "PL-REPLICAS-FEWER",
            found(
                worlds.hygon(*(worlds.dcu(index, health="lost" if index == 3 else "ok") for index in range(8))),
                worlds.dcu_service(cards=["all"], topology={"min_replicas": 7}),
            ),
        ),
        "modelyard_services[minicpm-v-4.5].topology",
        "7 of 8 instances can have cards; left out: instance 3 (card 3 (0000:3f:00.0): it does not answer any more)",
        "nothing, while 7 (min_replicas) are enough; mend the card and deploy again for the rest",
    ),
    (
        "PL-TOPOLOGY",
        lambda: found(
            worlds.nvidia(models={worlds.MODEL: worlds.listing(config={"num_attention_heads": 15})}), worlds.gpu_service()
        ),
        "modelyard_services[qwen3-14b-32k].topology.tensor_parallel_size",
        "the model has 15 attention heads (config.json), which 2 ranks cannot share evenly",
        "set one of 1, 3, 5",
    ),
    (
        "PL-CARDS",
        lambda: about(
            "PL-CARDS",
            found(
                worlds.nvidia(worlds.card(0), worlds.card(1, health="needs_reset")),
                worlds.gpu_service(cards=["all"], topology={"replicas": 2, "tensor_parallel_size": 1}),
            ),
        ),
        "modelyard_services[qwen3-14b-32k].cards",
        "2 x tensor_parallel_size 1 needs 2 GPU(s), and instance 1 gets none: card 1 (0000:02:00.0): the driver says that it "
        "must be reset",
        "free or mend these cards, name others with modelyard_services[qwen3-14b-32k].cards, or set "
        "modelyard_services[qwen3-14b-32k].topology.min_replicas to go on with fewer",
    ),
    (
        "PL-CARDS",
        lambda: found(worlds.hygon(), worlds.dcu_service(cards=["7", "8"], topology={"replicas": 2})),
        "modelyard_services[minicpm-v-4.5].cards",
        "DCU 8 wanted; box has 0, 1, 2, 3, 4, 5, 6, 7",
        "name cards that are there, or all",
    ),
]

DRIVERS = [
    (
        "PF-TOOL-MISSING",
        lambda: of_gpus(
            worlds.nvidia(
                accelerators={"nvidia": {"tool": {"path": "", "state": "missing", "seconds": 0.0, "said": "there is none"}}}
            )
        ),
        "box:nvidia-smi",
        "2 card(s) of nvidia on the bus, but nvidia-smi was not found",
        "install the driver with its tools, or name the folder of nvidia-smi in modelyard_tool_path",
    ),
    (
        "PF-TOOL-HANGS",
        lambda: of_gpus(seen(tool={"state": "hangs", "seconds": 20.04, "said": "it was ended after 20 s"})),
        "box:/usr/bin/nvidia-smi",
        "nvidia-smi gave no answer within 20 s; that is how a sick card or driver shows",
        f"run once more (without persistence mode it may only be slow), then look into the kernel log. {REBOOT}",
    ),
    (
        "PF-TOOL-OUTPUT",
        lambda: of_gpus(seen(tool={"state": "unreadable", "said": "<?xml version\n\n  <nvidia_smi_log>  \n"})),
        "box:/usr/bin/nvidia-smi",
        "nvidia-smi cannot be relied on; it said: <?xml version / <nvidia_smi_log>",
        "run nvidia-smi by hand as user ops",
    ),
    (
        "PF-TOOL-OUTPUT",
        lambda: of_gpus(seen(tool={"state": "failed", "said": ""}, errors=[kind("nvml_init_failed")])),
        "box:/usr/bin/nvidia-smi",
        "nvidia-smi cannot be relied on; it said: nothing",
        "run nvidia-smi by hand as user ops",
    ),
    (
        "PF-DRIVER-NOT-LOADED",
        lambda: of_gpus(
            seen(
                tool={"state": "failed", "said": "NVIDIA-SMI has failed"},
                errors=[kind("driver_not_loaded")],
                driver={"loaded": "", "library": "580.95.05", "on_disk": "580.95.05"},
            )
        ),
        "box:nvidia driver",
        "the kernel module is not loaded; version 580.95.05 is on disk",
        "load it (modprobe, as root) and read the kernel log when that fails; after a kernel update it must be built again",
    ),
    (
        "PF-DRIVER-NOT-LOADED",
        lambda: of_gpus(
            seen(
                tool={"state": "failed", "said": "NVIDIA-SMI has failed"},
                errors=[kind("driver_not_loaded")],
                driver={"loaded": "", "library": "", "on_disk": ""},
            )
        ),
        "box:nvidia driver",
        "the kernel module is not loaded; no module for this kernel was found on disk",
        "load it (modprobe, as root) and read the kernel log when that fails; after a kernel update it must be built again",
    ),
    (
        "PF-DRIVER-MISMATCH",
        lambda: of_gpus(seen(tool={"state": "failed"}, errors=[kind("version_mismatch")], driver={"library": "580.178.04"})),
        "box:nvidia driver",
        "the kernel runs 580.95.05, the library is 580.178.04",
        f"an update came while the old module stayed loaded, so nothing new can start. {REBOOT}",
    ),
    (
        "PF-DRIVER-PENDING",
        lambda: of_gpus(seen(driver={"on_disk": "580.178.04"})),
        "box:nvidia driver",
        "the kernel runs 580.95.05, on disk is 580.178.04: the next reboot changes the driver",
        "plan that reboot, or put the pinned version back and hold it",
    ),
]

CARDS = [
    (
        "PF-CARD-GONE",
        lambda: found(worlds.nvidia(baseline={"GPU-7": worlds.noted(2, "0000:41:00.0")})),
        "box:cards",
        "card 2 (GPU-7, 0000:41:00.0), which a deploy has seen here, is not there any more",
        "look into the kernel log and at the card; if it was taken out on purpose, remove its entry from "
        "/opt/modelyard/cards.json",
    ),
    (
        "PF-CARD-COUNT",
        lambda: found(worlds.nvidia(), worlds.gpu_service(cards=["0"], topology=ONE_RANK), cards_expected={"count": 3}),
        "box",
        "3 card(s) expected, 2 answer and 2 are on the bus",
        "look into the kernel log for the missing one, or correct modelyard_cards_expected.count",
    ),
    (
        "PF-CARD-NAME",
        lambda: of_gpus(card(name="Tesla T4"), cards_expected={"name": "rtx 4090"}),
        "box",
        "cards whose name holds 'rtx 4090' expected; found 1: Tesla T4",
        "look at the right host, or correct modelyard_cards_expected.name",
    ),
    (
        "PF-CARD-ORDER",
        lambda: of_gpus(
            worlds.nvidia(
                baseline={
                    worlds.card(0)["uuid"]: worlds.noted(1, "0000:01:00.0"),
                    UUID_1: worlds.noted(0, "0000:02:00.0"),
                }
            )
        ),
        "box:nvidia",
        "the numbers of the cards are not those of the last deploy: "
        "1 is now 0 (GPU-00000000-aaaa-bbbb-cccc-dddddddddddd); 0 is now 1 (GPU-00000001-aaaa-bbbb-cccc-dddddddddddd)",
        "a card was added, removed or moved, so cards: [0, 1] may mean other cards now. Correct cards in the inventory, then "
        "remove /opt/modelyard/cards.json on the host: the next deploy writes it anew",
    ),
    (
        "PF-CARD-LOST",
        lambda: of_gpus(card(health="lost")),
        "box:card 1 (0000:02:00.0)",
        "it does not answer any more",
        "look into the kernel log; mostly only a reboot, or power off and on, brings it back. Ask the other users first",
    ),
    (
        "PF-CARD-NEEDS-RESET",
        lambda: of_gpus(card(health="needs_reset")),
        "box:card 1 (0000:02:00.0)",
        "the driver says that it must be reset",
        RESET,
    ),
    (
        "PF-CARD-ERRORS",
        lambda: of_gpus(card(health="error")),
        "box:card 1 (0000:02:00.0)",
        "its name, address or utilisation reads as an error",
        "take it out of cards, and look into the kernel log; if it stays so after a reboot, have it replaced",
    ),
    (
        "PF-CARD-DEGRADED",
        lambda: of_gpus(card(health="degraded")),
        "box:card 1 (0000:02:00.0)",
        "a sensor or a counter of it reads as an error, or its infoROM is damaged",
        WATCH,
    ),
    (
        "PF-CARD-UNKNOWN",
        lambda: of_gpus(card(health="unknown", memory_used_mib=None)),
        "box:card 1 (0000:02:00.0)",
        "it is on the bus, but the vendor's tool tells nothing live about it",
        "look into the kernel log, and whether the tool and the driver are meant for this card",
    ),
    (
        "PF-CARD-MODE",
        lambda: of_gpus(card(mig=True)),
        "box:card 1 (0000:02:00.0)",
        "it is split up (MIG is enabled), which this version does not serve on",
        "leave it out of cards, or have an admin disable MIG while nobody uses it",
    ),
    (
        "PF-CARD-MODE",
        lambda: of_gpus(card(compute_mode="Prohibited")),
        "box:card 1 (0000:02:00.0)",
        "its compute mode is Prohibited: no process may compute on it",
        "an admin allows computing again: nvidia-smi -i 0000:02:00.0 -c DEFAULT",
    ),
    (
        "PF-CARD-OTHER",
        lambda: found(card(health="needs_reset", mig=True), worlds.gpu_service(cards=["0"], topology=ONE_RANK)),
        "box:card 1 (0000:02:00.0)",
        "no service wants this card; the driver says that it must be reset; it is split up (MIG is enabled), which this version "
        "does not serve on",
        "nothing for these services; tell the one who looks after the host",
    ),
    (
        "PF-CARD-LOG",
        lambda: of_gpus(worlds.nvidia(kernel_log={"events": [event(XID)]})),
        "box:kernel log",
        f"since the boot: {XID}",
        "compare the time with that of the trouble, and look at the card's health and the tensor test",
    ),
    (
        "PF-HOST-LOG",
        lambda: found(worlds.survey(kernel_log={"events": [event(KILLED, kind="oom_kill")]}), worlds.service()),
        "box:kernel log",
        f"since the boot: {KILLED}",
        "if it was an engine: compare the time with its log; leftovers may hold memory since then",
    ),
    (
        "PF-DEVICE-DENIED",
        lambda: of_gpus(
            worlds.nvidia(
                worlds.card(0),
                worlds.card(1, device_files=[worlds.device_file("/dev/nvidia1", state="denied", group="video", mode="0660")]),
            )
        ),
        "box:nvidia",
        "user ops may not open /dev/nvidia1 (root:video 0660)",
        "an admin adds ops to the group video; log in again afterwards",
    ),
    (
        "PF-DEVICE-MISSING",
        lambda: of_gpus(seen(shared_files=[worlds.device_file("/dev/nvidiactl", state="missing")])),
        "box:nvidia",
        "device files are missing: /dev/nvidiactl",
        "load the driver's modules; in a container the files must be passed in",
    ),
    (
        "PF-CARD-TEST",
        lambda: tested(
            [
                {"index": 0, "ok": True, **ran(answer())},
                {"index": 1, "ok": False, **ran(answer(deviation={"float32": 1e-7, "float16": 0.25}))},
            ],
            [],
        ),
        f"box:card 1 ({UUID_1})",
        "card 1 computes wrong: float16 deviates by 0.25 (allowed: float32 0.0001, float16 0.005)",
        card_causes.do("wrong"),
    ),
    (
        "PF-ALL-REDUCE",
        lambda: [
            {**finding, "do": finding["do"].partition(". ")[0]}  # the rest is advice for the vendor's libraries
            for finding in tested(
                [],
                [
                    {
                        "name": "qwen3-14b-32k/0",
                        "ok": False,
                        "state": "failed",
                        "seconds": 4.0,
                        "broken": [],
                        "ranks": [
                            {"cards": [0], **ran({"wrong": 0, "bytes": 16777216})},
                            {"cards": [1], **ran({"wrong": 12, "bytes": 16777216})},
                        ],
                    }
                ],
            )
        ],
        "box:cards 0, 1 of qwen3-14b-32k/0",
        "rank 1 (card 1) got wrong sums: 12 of 4194304 numbers",
        "data is changed on its way between the cards: do not use them together",
    ),
]

USERS = [
    (
        "PF-STRANGER",
        lambda: of_gpus(on_card_1(EVE)),
        "box:card 1 (0000:02:00.0)",
        "pid 4711 of user eve (python train.py) uses 30000 MiB",
        "ask that user, or take another card; the process is left alone",
    ),
    (
        "PF-STRANGER",
        lambda: of_gpus(worlds.merged(card(holders=[4711], memory_used_mib=30004), {"processes": told(EVE)})),
        "box:card 1 (0000:02:00.0)",
        "30004 MiB of 49140 MiB are in use, 0 of it by processes that are known; idle is 64 MiB, assumed: none was written down "
        "on this host yet. These have the card open: pid 4711 of user eve (python train.py)",
        "ask that user; the process is left alone",
    ),
    (
        "PF-HOLDER",
        lambda: of_gpus(worlds.merged(card(holders=[4711]), {"processes": told(EVE)})),
        "box:card 1 (0000:02:00.0)",
        "these have the card's device file open, but use none of its memory: pid 4711 of user eve (python train.py)",
        "nothing, unless the card must be reset: it counts as in use then",
    ),
    (
        "PF-CARD-IN-USE",
        lambda: found(on_card_1(EVE), worlds.gpu_service(cards=["0"], topology=ONE_RANK)),
        "box:card 1 (0000:02:00.0)",
        "pid 4711 of user eve (python train.py) uses 30000 MiB",
        "nothing: no service is to be started on this card",
    ),
    (
        "PF-CARD-USERS-UNKNOWN",
        lambda: of_gpus(seen(process_list="partial")),
        "box:nvidia",
        "who uses the cards is not known whole: the tool's list of processes is partial",
        "as root more is seen; inside a container the processes of other containers are not",
    ),
    (
        "PF-MEMORY-HELD",
        lambda: of_gpus(worlds.merged(card(memory_used_mib=30004), {"baseline": {UUID_1: RESTING}})),
        "box:card 1 (0000:02:00.0)",
        "30004 MiB of 49140 MiB are in use, 0 of it by processes that are known; idle is 400 MiB, as written down at a deploy. "
        "No living process holds the rest",
        "look again in a minute, it can come back late. Then, after asking everybody who uses the host, an admin resets the card "
        "or reloads the driver",
    ),
    (
        "PF-BUSY-WITHOUT-PROCESS",
        lambda: of_gpus(card(utilization_pct=100.0)),
        "box:card 1 (0000:02:00.0)",
        "100 % busy, without a process and without memory in use",
        "a process was killed in the middle of its work; computing goes on as a rule, and the tensor test decides",
    ),
]

PROCESSES = [
    (
        "PF-ZOMBIE-HOLDS",
        lambda: of_gpus(on_card_1(ENDED, zombies=[372858])),
        "box:pid 372858",
        "pid 372858 of user ops ([VLLM::Worker_TP]) has ended, but it holds 30000 MiB on card 1; parent 1 (systemd)",
        ZOMBIE_DO,
    ),
    (
        "PF-ZOMBIE-HOLDS",
        lambda: of_gpus(on_card_1(HALF_ENDED, zombies=[372858])),
        "box:pid 372858",
        "pid 372858 of user ops ([VLLM::Worker_TP]) has ended, but thread 372901 of it lives on (state D), it holds 30000 MiB on "
        "card 1; parent 1 (systemd)",
        ZOMBIE_DO,
    ),
    (
        "PF-ZOMBIE-HOLDS",
        lambda: of_gpus(worlds.merged(on_card_1(ENDED_BELOW_BOB, zombies=[372858]), {"processes": told(BOB)})),
        "box:pid 372858",
        "pid 372858 of user ops ([VLLM::Worker_TP]) has ended, but it holds 30000 MiB on card 1; parent 50 (sh run.sh of bob)",
        f"its parent must read its end: ask the owner of 50 to end that process. Then {ZOMBIE_DO}",
    ),
    (
        "PF-ZOMBIE",
        lambda: found(
            worlds.survey(zombies=[9], processes=told(worlds.process(9, state="Z", comm="sh", threads=[], **BARE))),
            worlds.service(),
        ),
        "box:processes",
        "ended, and not yet read by their parents, without anything that a service needs: 9 sh (eve, parent 1 (systemd))",
        "nothing: they mostly go when their parent ends or reads them",
    ),
    (
        "PF-STUCK",
        lambda: [
            finding
            for finding in of_gpus(worlds.merged(card(holders=[77]), {"processes": told(HUNG), "stuck": [77]}))
            if finding["id"] != "PF-HOLDER"
        ],
        "box:pid 77",
        "pid 77 of user eve (python train.py) hangs in the kernel (state D, inside os_acquire_rwlock_write < _nv000001rm < "
        "nvidia_ioctl < x64_sys_ioctl)",
        "no signal ends it: keep /proc/PID/stack and the kernel log. After asking everybody who uses the host, an admin reloads "
        "the driver or reboots",
    ),
    (
        "PF-NEEDS-ADMIN",
        lambda: of_gpus(worlds.merged(card(), handed_over(left=[77]))),
        "box:gone",
        "since 2026-11-29T10:00:00Z a stop of this service waits for an admin: pid 77, which is not to be seen here (gone, or in "
        "another container)",
        "see /opt/modelyard/evidence/x/report.txt; over when this is gone and memory is back",
    ),
    (
        "PF-NEEDS-ADMIN",
        lambda: [
            finding
            for finding in of_gpus(worlds.merged(card(memory_used_mib=30004), handed_over()))
            if finding["id"] != "PF-MEMORY-HELD"  # said beside it
        ],
        "box:gone",
        "since 2026-11-29T10:00:00Z a stop of this service waits for an admin: card 1 holds 30004 MiB, 30000 more than idle and "
        "than its users take",
        "see /opt/modelyard/evidence/x/report.txt; over when this is gone and memory is back",
    ),
    (
        "PF-ADMIN-DONE",
        lambda: of_gpus(worlds.merged(card(), handed_over())),
        "box:gone",
        "what a stop had handed over to an admin since 2026-11-29T10:00:00Z is over: its processes are gone, the memory is back",
        "nothing: the next deploy removes needs_admin.json",
    ),
    (
        "PF-STUCK-ELSEWHERE",
        lambda: of_gpus(
            worlds.nvidia(processes=told(worlds.process(78, state="D", stack=None, comm="cp", command="cp a b")), stuck=[78])
        ),
        "box:pid 78",
        "pid 78 of user eve (cp a b) hangs in the kernel (state D)",
        "it mostly waits for a disk or a network file system: look whether the models lie there. "
        "Where it hangs is for root to see (/proc/PID/stack)",
    ),
    (
        "PF-NAME-USED",
        lambda: of_gpus(worlds.nvidia(sessions=[session("qwen3-14b-32k")])),
        "box:qwen3-14b-32k",
        "the name is taken: screen session qwen3-14b-32k of user eve (pid 600)",
        "two of one name cannot be told apart: rename the service, or have the owner end the other",
    ),
    (
        "PF-NAME-USED",
        lambda: of_gpus(worlds.nvidia(units=[{"name": "qwen3-14b-32k.service", "state": "failed", "scope": "system"}])),
        "box:qwen3-14b-32k",
        "the name is taken: system unit qwen3-14b-32k.service (failed)",
        "two of one name cannot be told apart: rename the service, or have the owner end the other",
    ),
    (
        "PF-NAME-SIMILAR",
        lambda: of_gpus(worlds.nvidia(sessions=[session("vllm", kind="tmux", pid=None)])),
        "box:qwen3-14b-32k",
        "similar names are there: tmux session vllm of user eve (pid unknown)",
        "nothing, if it is somebody else's; it may also be an earlier run by hand that holds cards or ports",
    ),
    (
        "PF-GATEWAY",
        lambda: found(
            worlds.survey(programs={"nginx": ""}),
            worlds.service(gateway={**worlds.NO_GATEWAY, "kind": "nginx", "host": "127.0.0.1", "port": 8100}),
        ),
        "modelyard_services[tiny-qwen3].gateway.kind",
        "nginx is not installed on box",
        "install the package nginx there and leave its own service switched off, or choose the kind modelyard",
    ),
    (
        "PF-OPEN-DOOR",
        lambda: found(worlds.survey(), worlds.service(listen={"host": "0.0.0.0"}, key_hash="")),
        "box:8000",
        "the engines of tiny-qwen3 listen on 0.0.0.0, port 8000, and ask for no API key",
        "set modelyard_api_keys, or listen.host: 127.0.0.1, where only this host or its gateway is to reach them",
    ),
    (
        "PF-OPEN-DOOR",
        lambda: found(worlds.survey(), worlds.service(gateway={**worlds.NO_GATEWAY, "kind": "modelyard", "port": 8100})),
        "box:8100",
        "the gateway of tiny-qwen3 listens on 0.0.0.0, port 8100, and asks for no API key",
        "set modelyard_api_keys or gateway.keys_file, or gateway.host: 127.0.0.1, where only this host is to reach it",
    ),
    (
        "PF-SUPERVISOR",
        lambda: found(supervised(screen={"path": ""}), worlds.service(supervisor="screen")),
        "box:tiny-qwen3",
        "screen is not installed",
        "install the package screen, or choose another supervisor for the service; plain needs nothing",
    ),
    (
        "PF-SUPERVISOR",
        lambda: found(
            supervised(systemd={"running": False, "root": True, "sudo": False, "units": {}}), worlds.service(supervisor="systemd")
        ),
        "box:tiny-qwen3",
        "systemd does not run this host: process 1 is systemd",
        "choose the supervisor plain or screen for the service",
    ),
    (
        "PF-SUPERVISOR",
        lambda: found(
            supervised(systemd={"running": True, "root": False, "sudo": False, "units": {}}), worlds.service(supervisor="systemd")
        ),
        "box:tiny-qwen3",
        "user ops is not root, and `sudo -n true` fails: a unit of the system cannot be installed",
        "let that user run install and systemctl by sudo without a password, or choose systemd_user, screen or plain",
    ),
    (
        "PF-SUPERVISOR",
        lambda: found(
            supervised(
                systemd={"running": True, "root": True, "sudo": False, "units": {"modelyard-tiny-qwen3.service": "/home/eve/x"}}
            ),
            worlds.service(supervisor="systemd"),
        ),
        "box:modelyard-tiny-qwen3.service",
        "there is a unit file modelyard-tiny-qwen3.service, which was made for /home/eve/x",
        "rename the service, or disable that unit and remove its file, if nobody needs it",
    ),
    (
        "PF-SUPERVISOR",
        lambda: found(supervised(systemd_user=own_manager(problem="no manager")), worlds.service(supervisor="systemd_user")),
        "box:tiny-qwen3",
        "systemd of the user cannot be reached: no manager",
        "loginctl enable-linger ops starts it (as root, where that user is refused), or choose another supervisor for the "
        "service; plain needs nothing",
    ),
    (
        "PF-LINGER",
        lambda: found(supervised(systemd_user=own_manager(lingers=False)), worlds.service(supervisor="systemd_user")),
        "box:tiny-qwen3",
        "user ops does not linger: systemd ends the engines with the last login, and starts none at boot",
        "loginctl enable-linger ops, as that user or, where that is refused, as root",
    ),
]

HOST = [
    (
        "PF-DISK-LOW",
        lambda: found(worlds.survey(disks=[disk(free_mib=1023)]), worlds.service()),
        "box:/opt/modelyard",
        "1023 MiB are free of 50000 (home, logs); logs and caches need room",
        "free space there, or use another disk",
    ),
    (
        "PF-DISK-LOW",
        lambda: found(worlds.survey(disks=[disk(read_only=True, free_mib=0)]), worlds.service()),
        "box:/opt/modelyard",
        "it is mounted read-only (home, logs)",
        "mount it writable, or use another",
    ),
    (
        "PF-DISK-LOW",
        lambda: found(worlds.survey(disks=[disk(free_inodes=999)]), worlds.service()),
        "box:/opt/modelyard",
        "999 inodes are free (home, logs): no new files can be made although there is room",
        "remove small files that nobody needs",
    ),
    (
        "PF-SHM-STALE",
        lambda: found(worlds.survey(shm={"segments": [segment("psm_1", 60.4), segment("psm_2", 40)]}), worlds.service()),
        "box:/dev/shm",
        "2 segments of engines (100 MiB, of eve) that no process holds, for example psm_1, psm_2",
        "their owner removes them; teardown.yml removes those of a service of this project",
    ),
    (
        "PF-LIMITS",
        lambda: found(worlds.survey(limits={"nofile": [1024, 4095], "nproc": [100, 2047]}), worlds.service()),
        "box:limits of ops",
        "open files at most 4095 (wanted: 4096); processes and threads at most 2047 (wanted: 2048)",
        "an admin raises them for ops (/etc/security/limits.conf, TasksMax= or --pids-limit)",
    ),
    (
        "PF-PROXY-DEAD",
        lambda: found(
            worlds.survey(environment=shell(proxies=[proxy(), proxy(source="/home/ops/.bashrc")])),
            worlds.service(),
        ),
        "box:127.0.0.1:7890",
        "http_proxy in environment of the session, http_proxy in /home/ops/.bashrc points to 127.0.0.1:7890, which does not "
        "answer (connection refused)",
        "engines start without it; pip and your own shell do not: remove it, or start the proxy",
    ),
    (
        "PF-VISIBILITY",
        lambda: of_gpus(worlds.nvidia(environment=shell(visibility=[visible("")]))),
        "box:/home/ops/.bashrc",
        "CUDA_VISIBLE_DEVICES is set, but empty: it hides every card (/home/ops/.bashrc)",
        "engines get their own list; programs that you start in that shell do not: unset it there",
    ),
    (
        "PF-INIT",
        lambda: found(worlds.survey(platform={"pid1": "sleep", "pid1_reaps": False}), worlds.service()),
        "box",
        "process 1 (sleep) does not read the ends of orphans: every stop leaves entries in state Z",
        "they are harmless; run the container with an init (--init) or systemd to avoid them",
    ),
    (
        "PF-PLATFORM",
        lambda: found(worlds.survey(platform={"container": "podman"}), worlds.service()),
        "box",
        "this host is a container (podman): processes, memory and device files of the machine outside are not seen whole",
        "nothing; read the other findings with that in mind",
    ),
    (
        "PF-NOT-READABLE",
        lambda: found(worlds.survey(not_readable=["open files of 212 processes of other users", "b"]), worlds.service()),
        "box",
        "user ops could not read: open files of 212 processes of other users; b",
        "nothing, but findings about strangers can be incomplete. As root more is seen: -b -e modelyard_home=/opt/modelyard",
    ),
]


def kind(name: str) -> dict[str, Any]:
    """An error of a vendor's tool."""
    return {"kind": name, "bus_id": "", "index": None, "detail": ""}


def event(line: str, **changes: Any) -> dict[str, Any]:
    """A line of the kernel log, about a card if nothing else is said."""
    return {"kind": "xid", "bus_id": "0000:02:00.0", "xid": 79, "pid": 372858, "line": line, **changes}


def session(name: str, **changes: Any) -> dict[str, Any]:
    """A session of somebody else."""
    return {"kind": "screen", "name": name, "pid": 600, "user": "eve", "attached": False, **changes}


def disk(**changes: Any) -> dict[str, Any]:
    """A disk with room."""
    base = {"path": "/opt/modelyard/logs", "place": "/opt/modelyard", "purposes": ["home", "logs"], "fs": "ext4"}
    return {**base, "free_mib": 40000, "total_mib": 50000, "free_inodes": 100000, "read_only": False, "problem": "", **changes}


def segment(name: str, mib: float, **changes: Any) -> dict[str, Any]:
    """A segment of shared memory that no process holds."""
    return {"name": name, "user": "eve", "mib": mib, "age_s": 90000, "holders": [], **changes}


def proxy(**changes: Any) -> dict[str, Any]:
    """A proxy of the session that does not answer."""
    base = {"variable": "http_proxy", "value": "http://127.0.0.1:7890", "source": "environment of the session"}
    return {**base, "host": "127.0.0.1", "port": 7890, "answers": False, "why": "connection refused", **changes}


def shell(**changes: Any) -> dict[str, Any]:
    """The survey's group `environment`, which is replaced and not merged."""
    return {"proxies": [], "visibility": [], **changes}


def visible(value: str, **changes: Any) -> dict[str, Any]:
    """A list of visible cards that a shell sets."""
    return {"variable": "CUDA_VISIBLE_DEVICES", "value": value, "source": "/home/ops/.bashrc", **changes}


CHOICES = (
    "then a person's choices are, in this order and after asking everybody who uses the host: end who is on the card; unload and "
    "load the driver's modules (needs all its cards free); reboot"
)
REFUSED_RESET = {"timed_out": True, "note": "nvidia-smi had not ended after 120 s and was killed", "stdout": "", "stderr": ""}


def recovered(survey: dict[str, Any]) -> Findings:
    """What a recovery of the service over two NVIDIA cards adds to the findings of its plan."""
    plan = planner.plan(worlds.intent(worlds.gpu_service()), survey)
    return [item for item in recovery.findings(plan, survey) if item not in plan["findings"]]


def with_weights(gib: float, exact: bool) -> dict[str, Any]:
    """A host with two NVIDIA cards and a model of so many GiB, as its headers say, or as its files are large."""
    files = {"config.json": 700, "model.safetensors": int(gib * 2**30), "tokenizer.json": 1, "tokenizer_config.json": 1}
    changes = {"files": files, "tensors": [worlds.tensors(gib)] if exact else None}
    return worlds.nvidia(models={worlds.MODEL: worlds.listing(**changes)})


def with_model(**changes: Any) -> Findings:
    """Findings of a plan whose model's folder looks like this."""
    return found(worlds.survey(models={worlds.MODEL: worlds.listing(**changes)}), worlds.service())


HUB = {"from": "huggingface", "repo": "Qwen/Qwen3-14B", "revision": "v2"}
MERGE = {"base": "/srv/models/base", "adapter": "/srv/models/adapter"}


def merging(**changes: Any) -> Findings:
    """Findings of a plan whose model is to be merged; `changes`: of the survey."""
    base, adapter = worlds.listing(files={"model.safetensors": 32 * 2**30}), worlds.adapter()
    listed = {worlds.MODEL: worlds.listing(exists=False), MERGE["base"]: base, MERGE["adapter"]: adapter}
    survey = worlds.survey(**worlds.merged({"models": listed}, changes))
    return found(survey, worlds.service(model={"merge": MERGE}))


MODEL = [
    (
        "PF-MODEL-OTHER",
        lambda: found(
            worlds.survey(
                models={
                    worlds.MODEL: worlds.listing(
                        staged={"from": "huggingface", "repo": "Qwen/Qwen3-14B", "revision": "0a1b", "asked": "v1"}
                    )
                }
            ),
            worlds.service(model={"source": HUB}),
        ),
        "box:/srv/models/tiny-qwen3",
        "the folder of tiny-qwen3 holds revision v1, and something else is wanted",
        "give what is wanted a folder of its own; what lies there, and may be served, stays as it is",
    ),
    (
        "PF-MODEL-CHANGED",
        lambda: with_model(staged={"from": "huggingface"}, changed=["config.json"]),
        "box:/srv/models/tiny-qwen3",
        "files of tiny-qwen3 were written after they were staged and hashed: config.json",
        "check them: playbooks/models.yml -e model_verify=full; where their hashes are right, this ends",
    ),
    (
        "PF-MERGE-MEMORY",
        lambda: merging(host={"memory_available_mib": 30000}),
        "box",
        "merging tiny-qwen3 needs about 49 GiB of main memory, 29 GiB are free",
        "merge it on a larger host and stage the result from there, or serve the adapter unmerged (enable_lora)",
    ),
    (
        "PF-MODEL-DAMAGED",
        lambda: with_model(damaged={"tokenizer.json": "it is a web page, as a server sends it in place of a file"}),
        "box:/srv/models/tiny-qwen3",
        "files of the model of tiny-qwen3 are damaged: tokenizer.json: it is a web page, as a server sends it in place of a file",
        "fetch just these files again; the rest can stay",
    ),
    (
        "PF-MODEL-CONFIG",
        lambda: with_model(config={"architectures": ["AquilaForCausalLM"]}),
        "box:/srv/models/tiny-qwen3/config.json",
        "tiny-qwen3: AquilaForCausalLM is served no more by vLLM 0.32.0 (gone in 0.25.1 at the latest)",
        "serve it from a runtime with an earlier vLLM",
    ),
    (
        "PF-MODEL-DOUBT",
        lambda: with_model(config={"model_type": "qwen2"}),
        "box:/srv/models/tiny-qwen3/config.json",
        "tiny-qwen3: it states no rope_theta: the default of transformers holds, silently, also where the model was trained with "
        "another",
        "take config.json from the model's original folder; Qwen2.5 and Llama 3 have other values than the default",
    ),
    (
        "PF-MODEL-TEMPLATE",
        lambda: with_model(template=""),
        "box:/srv/models/tiny-qwen3",
        "the model of tiny-qwen3 has no chat template: /v1/chat/completions would answer 400",
        checkpoint_files.TEMPLATE,
    ),
    (
        "PF-MODEL-ADAPTER",
        lambda: with_model(
            files={"config.json": 0, "adapter_config.json": 1},
            adapter={"config": {"base_model_name_or_path": "Qwen/Qwen2-1.5B"}, "modules": {}, "other": [], "problem": ""},
        ),
        "box:/srv/models/tiny-qwen3",
        "the folder of tiny-qwen3 holds an adapter of Qwen/Qwen2-1.5B, and no model",
        "merge it into its base and name the result, or name the base and serve it with engine.enable_lora and lora_modules",
    ),
]


SMALLER = "a smaller or quantised checkpoint, or larger cards: nothing that can be set makes it fit"
WHOLE = "playbooks/memory.yml shows the whole plan"
MEMORY = [
    (
        "PF-MEMORY-PLAN",
        lambda: of_gpus(with_weights(1000, exact=True)),
        "box:card 0 (0000:01:00.0), box:card 1 (0000:02:00.0)",
        "qwen3-14b-32k: the weights alone take 500 GiB on each of 2 rank(s), 0.9 of the card is 43 GiB",
        f"{SMALLER}. {WHOLE}",
    ),
    (
        "PF-MEMORY-FREE",
        lambda: of_gpus(card(memory_used_mib=30004), checks={"PF-MEMORY-HELD": "off"}),
        "box:card 1 (0000:02:00.0)",
        "qwen3-14b-32k: the engine asks for 43 GiB of the card (0.9 of 48 GiB) and does not start unless that is free; "
        "29 GiB are in use",
        f"wait until that memory is free, or take other cards; or engine.gpu_memory_utilization: 0.37 would fit. {WHOLE}",
    ),
    (
        "PF-MEMORY-TIGHT",
        lambda: of_gpus(with_weights(88, exact=False)),
        "box:card 0 (0000:01:00.0), box:card 1 (0000:02:00.0)",
        "qwen3-14b-32k: weights 44 GiB, and about 1.9 GiB for activations, graphs and context, leave nothing of 43 GiB for the "
        "KV cache (estimated)",
        f"topology.tensor_parallel_size: 4 would fit, on cards like these. {WHOLE}",
    ),
]


#: What the first look of a diagnosis sees of an engine that nobody uses.
IDLE = {"started": True, "alive": True, "health": 200, "log": "/l", "fatal": [], "counters": [{"running": 0.0}, {"running": 0.0}]}
RECOVERY = [
    (
        "RC-CONFIRM",
        lambda: reset.confirmation("box:7", {"box": [{"backend": "nvidia", "index": 0}]}),
        "confirm_gpu_reset box:7",
        "box has no card 7; its cards: 0 (nvidia)",
        "look with playbooks/preflight.yml which cards there are, and confirm exactly one of those. Nothing was reset",
    ),
    (
        "RC-RESET",
        lambda: reset.judge(worlds.nvidia(), "nvidia", [{"index": 0, "bus_id": "0000:01:00.0"}], True, {}),
        "box",
        "user ops is not root, and only root may reset a card",
        "run again with -e recover_reset_become=true, so that this one task uses sudo, or log in as root",
    ),
    (
        "RC-RESET-FAILED",
        lambda: reset.verdict(REFUSED_RESET, {"resets": [], "errors": []}, [worlds.card(0)], "box"),
        "box:card 0",
        "the reset did not come to an end: nvidia-smi had not ended after 120 s and was killed",
        f"keep the kernel log; the card hangs in the driver, and no signal helps; {CHOICES}",
    ),
    (
        "RC-BASELINE",
        lambda: recovered(worlds.nvidia(worlds.card(0), worlds.card(1, memory_used_mib=30004))),
        "box:card 1 (0000:02:00.0)",
        "30004 MiB are in use (idle is 64 MiB, assumed, none was written down)",
        recovery.DO.format(reset="box:1"),
    ),
]


DIAGNOSIS = [
    (
        "DG-CONFIRM",
        lambda: diagnose.confirmation("box:qwen", {"box": {"qwen": [0, 1]}}),
        "confirm_diagnose box:qwen",
        "qwen has 2 instances (0, 1)",
        f"{diagnose.FORM}. Nothing was asked",
    ),
    (
        "DG-STATE",
        lambda: diagnose.readiness(IDLE | {"counters": [{"running": 2.0, "waiting": 1.0}, {"running": 0.0}]}, "box:qwen/0"),
        "box:qwen/0",
        "the service is busy: 3 request(s) of others run or wait; they would be lost with the engine",
        "wait until nobody uses it; behind a gateway take the instance out first (docs/gateway.md)",
    ),
]


CASES = [*REACHING, *DRIVERS, *CARDS, *USERS, *PROCESSES, *HOST, *MODEL, *MEMORY, *RECOVERY, *DIAGNOSIS]
