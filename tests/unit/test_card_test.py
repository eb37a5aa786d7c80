"""The tensor test: words, verdicts and requests; then its processes, with a shell script in place of the runtime's Python."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.judge import card_causes, card_report, card_test
from ansible_collections.modelyard.core.plugins.module_utils.plan import card_test_request, planner
from ansible_collections.modelyard.core.plugins.module_utils.process import children
from ansible_collections.modelyard.core.plugins.module_utils.survey import card_test as survey
from harness import alive, end, until
from unit import worlds

ANSWER = {
    "torch": "2.13.0+cu130",
    "name": "NVIDIA GeForce RTX 4090",
    "count": 1,
    "uuid": "1f8b0c4e-0000-4a5b-9c6d-0123456789ab",
    "free_mib": 23811,
    "total_mib": 24210,
    "deviation": {"float32": 4e-7, "float16": 3e-4},
}
UUID = f"GPU-{ANSWER['uuid']}"
SUM = {"backend": "nccl", "bytes": 16 * 2**20, "wrong": 0, "seconds": 0.004}


def result(state="passed", **changes):
    """One result as survey/card_test.py has it."""
    base = {"state": state, "rc": 0, "signal": None, "stage": "multiply", "answer": {}, "error": {}, "said": []}
    return {**base, "seconds": 3.0, "pid_left": {}, "index": 1, "ok": False, "holders": [], "cards": [1], **changes}


def failed(message, kind="RuntimeError", **changes):
    return result("failed", rc=1, error={"type": kind, "message": message}, **changes)


STUCK = {"pid": 71, "state": "D", "stack": ["uvm_va_block_migrate", "uvm_ioctl"]}


# -- what programs print --------------------------------------------------------------------------------------------------


def test_the_answer_is_found_between_other_output():
    said = card_test.read('NCCL version 2.29.7\n{"stage": "multiply"}\n{"answer": {"count": 1}}\n', "a warning\n")
    assert said == card_test.Said("multiply", {"count": 1}, {}, ["NCCL version 2.29.7", "a warning"])


def test_an_error_keeps_what_was_seen_before_it():
    said = card_test.read('{"error": {"type": "E", "message": "m", "seen": {"free_mib": 3}}}', "")
    assert (said.error, said.answer) == ({"type": "E", "message": "m"}, {"free_mib": 3})


@pytest.mark.parametrize(
    "line",
    ["{", "[1]", "null", '{"answer": 1}', '{"stage": 2}', '{"error": "x"}', "{}", "{" * 5000, '{"other": {}}', "\0\x1b[31m"],
)
def test_what_is_no_answer_is_text(line):
    said = card_test.read(line, "")
    assert (said.stage, said.answer, said.error) == ("", {}, {})
    assert all(text.isprintable() and len(text) <= card_test.COLUMNS for text in said.lines)


def test_a_number_that_is_none_is_none():
    assert card_test.read('{"answer": {"deviation": {"float32": NaN}}}', "").answer == {"deviation": {"float32": None}}


def test_only_the_last_lines_are_kept_and_errors_come_before_the_rest():
    said = card_test.read("".join(f"out {n}\n" for n in range(100)), "".join(f"err {n}\n" for n in range(7)))
    assert len(said.lines) == card_test.LINES
    assert said.lines[-1] == "err 6"
    assert said.lines[0] == "out 95"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("--api-key abc failed", "--api-key *** failed"),
        ("http://me:pw@proxy:1/", "http://me:***@proxy:1/"),
        ("HF_TOKEN=hf_abc", "HF_TOKEN=***"),
        ("password: abc", "password: ***"),
    ],
)
def test_secrets_are_masked_in_output_and_errors(text, shown):
    assert card_test.read("", text).lines == [shown]
    line = json.dumps({"error": {"type": "E", "message": text}})
    assert card_test.read(line, "").error["message"] == shown


# -- verdicts on a card ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "fault"),
    [
        (result(answer=ANSWER), ""),
        (result(answer={**ANSWER, "uuid": ""}), ""),
        (result(answer={**ANSWER, "uuid": "0000-1"}), "other_card"),
        (result(answer={**ANSWER, "count": 2}), "more"),
        (result(answer={**ANSWER, "count": 0}), "not_visible"),
        (result(answer={**ANSWER, "count": None}), "not_visible"),
        (result(answer={**ANSWER, "deviation": {"float32": 0.2, "float16": 3e-4}}), "wrong"),
        (result(answer={**ANSWER, "deviation": {"float32": None, "float16": 3e-4}}), "wrong"),
        (result(answer={**ANSWER, "deviation": {"float32": 4e-7}}), "wrong"),
        (result(answer={**ANSWER, "deviation": {"float32": -1, "float16": 3e-4}}), "wrong"),
        (result(answer={**ANSWER, "deviation": "none"}), "wrong"),
        (failed("No CUDA GPUs are available"), "not_visible"),
        (failed("No HIP GPUs are available", said=["Unable to open /dev/kfd read-write: Permission denied"]), "denied"),
        (failed("Found no NVIDIA driver on your system. Please check"), "no_driver"),
        (failed("The NVIDIA driver on your system is too old (found version 11040)."), "driver_old"),
        (failed("Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized"), "fabric"),
        (failed("Error 803: system has unsupported display driver / cuda driver combination"), "driver_mismatch"),
        (failed("Error 804: forward compatibility was attempted on non supported HW"), "driver_mismatch"),
        (failed("Torch not compiled with CUDA enabled", "AssertionError"), "build"),
        (failed("No module named 'torch'", "ModuleNotFoundError"), "no_module"),
        (failed("libgalaxyhip.so.5: cannot open shared object file: No such file", "ImportError"), "library"),
        (failed("CUDA out of memory. Tried to allocate 2.00 MiB.", "OutOfMemoryError"), "memory"),
        (failed("HIP out of memory. Tried to allocate"), "memory"),
        (failed("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "memory"),
        (failed("CUDA error: no kernel image is available for execution on the device"), "architecture"),
        (failed("HIP error: invalid device function"), "architecture"),
        (failed("CUDA error: all CUDA-capable devices are busy or unavailable"), "busy"),
        (failed("CUDA unknown error - this may be due to an incorrectly set up environment"), "unknown"),
        (failed("CUDA error: uncorrectable ECC error encountered"), "hardware"),
        (failed("CUDA error: an illegal memory access was encountered"), "hardware"),
        (failed("something new"), "other"),
        (failed("[enforce fail at /x/gloo/device.cc:84] ifa != nullptr. Unable to find address for: ib0"), "interface"),
        (failed("[Errno 2] No such file or directory: '/x/bin/python'", "NotStarted"), "not_started"),
        (failed("[Errno 22] Invalid argument", "NotStarted"), "core"),
        (result("crashed", signal=11), "crashed"),
        (
            result("crashed", signal=6, said=["hipErrorNoBinaryForGpu: Unable to find code object for all current devices!"]),
            "architecture",
        ),
        (result("hung", signal=9), "hung"),
        (result("hung", signal=9, stage="import torch"), "import"),
        (result("hung", pid_left=STUCK), "stuck"),
        (result("no_answer", said=["SyntaxError: invalid syntax"]), "no_answer"),
        (result("no_answer"), "no_answer"),
    ],
)
def test_the_fault_of_a_card(seen, fault):
    assert card_test.card_fault(seen, UUID) == fault


def test_every_fault_has_something_to_do():
    assert all(card_causes.do(id) for id in card_causes.ids())
    assert len({cause.id for cause in card_causes.CAUSES}) == len(card_causes.CAUSES)
    assert not set(card_causes.DO) & set(card_causes.BY_ID)


def asked(**changes):
    """A request for one NVIDIA card."""
    base = {"service": "one", "runtime": "/r", "backend": "nvidia", "device": "cuda", "running": False, "groups": []}
    return {**base, "cards": [{"index": 1, "uuid": UUID}], **changes}


def findings_of(*seen, groups=(), **changes):
    return card_report.report(asked(**changes), {"cards": list(seen), "groups": list(groups)}, "box")


def test_a_card_that_passes_is_a_row_and_no_finding():
    found, rows = findings_of(result(answer=ANSWER))
    assert found == []
    seen = "NVIDIA GeForce RTX 4090, torch 2.13.0+cu130, 23811 MiB free, deviation float32 4e-07, float16 3e-04"
    assert rows == [("card 1", "pass", "3.0", seen)]


HOLDERS = [{"pid": 4711, "user": "eve", "command": "python train.py", "marker": ""}]


@pytest.mark.parametrize(
    ("seen", "what", "do"),
    [
        (failed("No CUDA GPUs are available"), "card 1 made no tensor: No CUDA GPUs are available", "must list it"),
        (
            failed("CUDA out of memory. Tried 2 MiB.", answer={"free_mib": 12, "total_mib": 24210}, holders=HOLDERS),
            "card 1 made no tensor: CUDA out of memory. Tried 2 MiB.; 12 of 24210 MiB are free; "
            "it is held by pid 4711 of user eve (python train.py)",
            "ask its user",
        ),
        (
            failed("CUDA out of memory. Tried 2 MiB."),
            "card 1 made no tensor: CUDA out of memory. Tried 2 MiB.; who holds it could not be seen",
            "ask its user",
        ),
        (
            result(answer={**ANSWER, "deviation": {"float32": 0.25, "float16": None}}),
            "card 1 computes wrong: float32 deviates by 0.25, float16 deviates by no number "
            "(allowed: float32 0.0001, float16 0.005)",
            "take the card out of service",
        ),
        (
            result("hung", signal=9, seconds=120.02),
            "the test of card 1 gave no answer within 120 s, while multiplying",
            "look into the kernel log",
        ),
        (
            result("hung", seconds=125.1, stage="reach the card", pid_left=STUCK),
            "the test of card 1 gave no answer within 125 s, while reaching the card; still there although it was killed: "
            "pid 71, state D, in the kernel at uvm_va_block_migrate < uvm_ioctl",
            "is for its admin to decide",
        ),
        (
            result("hung", stage="", pid_left={**STUCK, "stack": None}),
            "the test of card 1 gave no answer within 3 s, while starting; still there although it was killed: pid 71, state D "
            "(only root may see where it is in the kernel)",
            "cannot be killed",
        ),
        (result("crashed", signal=11), "the test of card 1 was ended by SIGSEGV while multiplying", "driver or libraries failed"),
        (result("crashed", signal=4), "the test of card 1 was ended by SIGILL while multiplying", "processor instructions"),
        (result("crashed", signal=9), "the test of card 1 was ended by SIGKILL while multiplying", "main memory ran out"),
        (
            result("no_answer", rc=3),
            "the test of card 1 ended with exit code 3 and no answer: it said nothing",
            "look at what it said",
        ),
        (
            result(answer={**ANSWER, "count": 8}),
            "8 cards are visible where only card 1 was to be",
            "something else than the plan decides",
        ),
        (
            result(answer={**ANSWER, "uuid": "ffff"}),
            "another card answered for card 1: ffff",
            "PCI_BUS_ID",
        ),
        (
            failed("CUDA error: no kernel image is available\nfor x"),
            "card 1 made no tensor: CUDA error: no kernel image is available",
            "arch",
        ),
    ],
)
def test_what_is_said_about_a_card(seen, what, do):
    found, rows = findings_of(seen)
    assert [(f["id"], f["severity"], f["where"], f["what"]) for f in found] == [
        ("PF-CARD-TEST", "refuse", f"box:card 1 ({UUID})", what),
    ]
    assert do in found[0]["do"]
    assert rows == [("card 1", "FAIL", f"{seen['seconds']:.1f}", what)]


def test_what_concerns_the_whole_runtime_is_said_once():
    seen = [failed("No module named 'torch'", "ModuleNotFoundError", index=n) for n in (0, 1)]
    found, rows = findings_of(*seen, cards=[{"index": 0}, {"index": 1}])
    assert [(f["where"], f["what"]) for f in found] == [
        ("box:/r", "no tensor can be made with this runtime: No module named 'torch'"),
    ]
    assert [row[1] for row in rows] == ["FAIL", "FAIL"]


def test_every_card_that_fails_has_a_finding_of_its_own():
    seen = [failed("No CUDA GPUs are available", index=n) for n in (0, 1)]
    found, _ = findings_of(*seen, cards=[{"index": 0, "uuid": ""}, {"index": 1}])
    assert [f["where"] for f in found] == ["box:card 0", "box:card 1"]


@pytest.mark.parametrize(
    ("running", "marker", "verdict"),
    [(True, "one", "not tested"), (True, "two", "FAIL"), (False, "one", "FAIL")],
)
def test_memory_held_by_the_service_that_is_restarted_is_no_fault(running, marker, verdict):
    seen = failed("CUDA out of memory.", holders=[{**HOLDERS[0], "marker": marker}])
    found, rows = findings_of(seen, running=running)
    assert (rows[0][1], bool(found)) == (verdict, verdict == "FAIL")


# -- verdicts on an all-reduce --------------------------------------------------------------------------------------------


def rank(state="passed", number=0, **changes):
    base = {"answer": SUM if state == "passed" else {}, "stage": "all-reduce", "cards": [number]}
    return result(state, **{**base, **changes})


GONE = {"type": "RuntimeError", "message": "Connection closed by peer [127.0.0.1]:9"}


def reduced(*ranks, state="failed", broken=(), **changes):
    group = {
        "name": "one/0",
        "ok": state == "passed",
        "state": state,
        "seconds": 4.0,
        "broken": list(broken),
        "ranks": list(ranks),
    }
    return findings_of(groups=[group], cards=[], **changes)


def test_an_all_reduce_that_passes_is_a_row():
    found, rows = reduced(rank(), rank(number=1), state="passed")
    assert (found, rows) == ([], [("all-reduce one/0", "pass", "4.0", "2 ranks, nccl, 16 MiB in 0.004 s")])


def test_an_all_reduce_of_a_failed_card_is_not_tried():
    found, rows = reduced(state="not_run", broken=[1])
    assert (found, rows) == ([], [("all-reduce one/0", "not tested", "4.0", "card 1 did not pass alone")])


@pytest.mark.parametrize(
    ("ranks", "what", "do"),
    [
        (
            [rank("hung", stage="first all-reduce"), rank("hung", 1, stage="first all-reduce")],
            "no all-reduce within 3 s: rank 0 in the first all-reduce, rank 1 in the first all-reduce",
            "NCCL_P2P_DISABLE: '1'",
        ),
        (
            [rank("hung", stage="meet the other ranks"), rank("hung", 1, stage="reach the card")],
            "no all-reduce within 3 s: rank 0 waiting to meet the other ranks, rank 1 reaching the card",
            "driver of the card does not answer",
        ),
        (
            [rank("failed", error=GONE, seconds=2.0), rank("crashed", 1, signal=9, seconds=2.1)],
            "rank 1 (card 1) was ended by SIGKILL while in an all-reduce",
            "main memory ran out",
        ),
        (
            [rank("stopped", seconds=1.0), rank("failed", 1, seconds=2.0, error={"type": "E", "message": "CUDA out of memory."})],
            "rank 1 (card 1) failed: CUDA out of memory.",
            "free the memory",
        ),
        (
            [rank("failed", error=GONE, seconds=1.0), rank("stopped", 1)],
            "rank 0 (card 0) failed: Connection closed by peer [127.0.0.1]:9",
            "nothing more is known",
        ),
        (
            [
                rank(
                    "failed",
                    error={
                        "type": "RuntimeError",
                        "message": "[enforce fail at /x/device.cc:84] no. Unable to find address for: ib0",
                    },
                )
            ],
            "rank 0 (card 0) failed: no. Unable to find address for: ib0",
            "GLOO_SOCKET_IFNAME",
        ),
        (
            [rank("hung"), rank("hung", 1, pid_left=STUCK)],
            "rank 1 (card 1) gave no answer within 3 s, while in an all-reduce; still there although it was killed: pid 71, "
            "state D, in the kernel at uvm_va_block_migrate < uvm_ioctl",
            "cannot be killed",
        ),
        (
            [rank(), rank(number=1, answer={**SUM, "wrong": 12})],
            "rank 1 (card 1) got wrong sums: 12 of 4194304 numbers",
            "do not use them together",
        ),
        (
            [
                rank(
                    "failed",
                    error={
                        "type": "DistBackendError",
                        "message": "NCCL error in: x.cpp:2028, unhandled system error\nLast error:\n"
                        "Error while creating shared memory segment /dev/shm/nccl-x (size 9)",
                    },
                ),
                rank("stopped", 1),
            ],
            "rank 0 (card 0) failed: Error while creating shared memory segment /dev/shm/nccl-x (size 9)",
            "/dev/shm is full",
        ),
        (
            [
                rank(
                    "failed",
                    error={"type": "DistBackendError", "message": "unhandled cuda error, peer access is not supported between"},
                ),
                rank("stopped", 1),
            ],
            "rank 0 (card 0) failed: unhandled cuda error, peer access is not supported between",
            "NCCL_P2P_DISABLE",
        ),
    ],
)
def test_what_is_said_about_an_all_reduce(ranks, what, do):
    found, rows = reduced(*ranks)
    assert [(f["id"], f["severity"], f["what"]) for f in found] == [("PF-ALL-REDUCE", "refuse", what)]
    assert found[0]["where"] == f"box:cards {', '.join(str(n) for n in range(len(ranks)))} of one/0"
    assert do in found[0]["do"]
    assert rows[0][1] == "FAIL"


@pytest.mark.parametrize(
    ("backend", "hint"), [("hygon", "NCCL_P2P_LEVEL: SYS"), ("amd", "NCCL_P2P_DISABLE"), ("cpu", "GLOO_SOCKET_IFNAME")]
)
def test_the_next_try_depends_on_the_backend(backend, hint):
    found, _ = reduced(rank("hung"), rank("hung", 1), backend=backend, device="cpu" if backend == "cpu" else "cuda")
    assert hint in found[0]["do"]


# -- requests -------------------------------------------------------------------------------------------------------------


def planned(backend="nvidia", action="start", **changes):
    """A service as the planner has it: two instances of two ranks."""
    variable = "" if backend == "cpu" else "CUDA_VISIBLE_DEVICES"
    instances = []
    for index, cards in enumerate(([[0], [1]], [[2], [3]])):
        seen = {variable: ",".join(str(c) for rank in cards for c in rank)} if variable else {}
        instances.append({"name": f"one/{index}", "index": index, "cards": cards, "environment": {"A": "1", **seen}})
    base = {"name": "one", "action": action, "backend": backend, "visibility": variable, "runtime": {"path": "/r"}}
    return {**base, "instances": instances, **changes}


def test_every_card_is_asked_once_and_sees_itself_alone():
    made = card_test_request.request(planned())
    assert [(c["index"], c["environment"], c["cores"]) for c in made["cards"]] == [
        (n, {"A": "1", "CUDA_VISIBLE_DEVICES": str(n)}, []) for n in range(4)
    ]
    assert (made["device"], made["python"], made["running"]) == ("cuda", "/r/bin/python", False)


def test_the_ranks_of_an_instance_see_all_its_cards():
    made = card_test_request.request(planned())
    assert [g["name"] for g in made["groups"]] == ["one/0", "one/1"]
    assert [(r["cards"], r["environment"]["CUDA_VISIBLE_DEVICES"]) for r in made["groups"][1]["ranks"]] == [
        ([2], "2,3"),
        ([3], "2,3"),
    ]


def test_a_card_is_named_as_the_instance_names_it():
    service = planned()
    service["instances"] = service["instances"][:1]
    service["instances"][0]["environment"]["CUDA_VISIBLE_DEVICES"] = "GPU-a, MIG-b"
    made = card_test_request.request(service)
    assert [c["environment"]["CUDA_VISIBLE_DEVICES"] for c in made["cards"]] == ["GPU-a", "MIG-b"]


@pytest.mark.parametrize("value", ["", "all", "0", "0,1,2"])
def test_a_list_that_does_not_fit_the_cards_is_not_used(value):
    service = planned()
    service["instances"] = service["instances"][:1]
    service["instances"][0]["environment"]["CUDA_VISIBLE_DEVICES"] = value
    made = card_test_request.request(service)
    assert [c["environment"]["CUDA_VISIBLE_DEVICES"] for c in made["cards"]] == ["0", "1"]


def test_the_survey_says_uuid_and_device_files():
    cards = {"nvidia": [{"index": 1, "uuid": UUID, "device_files": [{"path": "/dev/nvidia1", "state": "ok"}]}], "cpu": []}
    made = card_test_request.request(planned(), cards)
    assert [(c["uuid"], c["device_files"]) for c in made["cards"][:2]] == [("", []), (UUID, ["/dev/nvidia1"])]
    assert card_test_request.request(planned(), cards["nvidia"]) == made


def test_on_cpu_a_card_is_a_core_and_a_rank_has_its_cores():
    service = planned("cpu")
    service["instances"] = [{"name": "one/0", "cards": [[0, 1], [2, 3]], "environment": {}}]
    made = card_test_request.request(service, {"cpu": [{"index": n} for n in range(4)]})
    assert (made["device"], [c["cores"] for c in made["cards"]]) == ("cpu", [[0], [1], [2], [3]])
    assert [r["cores"] for r in made["groups"][0]["ranks"]] == [[0, 1], [2, 3]]
    assert all(c["environment"] == {} for c in made["cards"])


def test_one_rank_needs_no_all_reduce():
    service = planned()
    service["instances"] = [{"name": "one/0", "cards": [[0]], "environment": {}}]
    assert card_test_request.request(service)["groups"] == []


def test_services_that_are_started_or_restarted_are_tested():
    actions = {"a": "start", "b": "keep", "c": "restart", "d": "refused"}
    plan = {"host": "box", "services": [{"name": name, "action": action} for name, action in actions.items()]}
    assert card_test_request.wanted(plan) == ["a", "c"]
    assert card_test_request.wanted(plan, ["b"]) == ["b"]
    with pytest.raises(ValueError, match="the plan for box has no service x; it has a, b, c, d"):
        card_test_request.wanted(plan, ["x", "a"])


@pytest.mark.parametrize(("action", "running"), [("start", False), ("restart", True), ("keep", True), ("refused", True)])
def test_a_service_that_may_run_is_known(action, running):
    assert card_test_request.request(planned(action=action))["running"] is running


def test_the_request_is_made_of_what_the_planner_says(figures):
    made = planner.plan(worlds.intent(), worlds.survey())["services"][0]
    request = card_test_request.request({"visibility": "", **made}, worlds.survey()["cards"])
    used = [core for rank in made["instances"][0]["cards"] for core in rank]
    assert used
    assert [c["cores"] for c in request["cards"]] == [[core] for core in used]
    assert [g["name"] for g in request["groups"]] == ["tiny-qwen3/0"]
    assert request["python"] == f"{worlds.RUNTIME}/bin/python"


# -- processes ------------------------------------------------------------------------------------------------------------

GOOD = json.dumps({"answer": {**ANSWER, "uuid": ""}})
#: Stands in for the runtime's Python; FAKE says how it behaves. $1 is -, $2 the device.
FAKE = f"""#!/bin/bash
say() {{ echo '{{"stage": "multiply"}}'; echo '{GOOD}'; }}
case "$FAKE" in
  good) cat >/dev/null; say ;;
  unread) say ;;
  reads) echo "$1 $2 $(sha256sum | cut -c1-64)" >&2; say ;;
  hang) trap '' TERM INT HUP; echo '{{"stage": "reach the card"}}'; while :; do sleep 0.1; done ;;
  crash) echo 'driver: bad thing' >&2; kill -SEGV $$ ;;
  garbage) head -c 300000 /dev/urandom; head -c 300000 /dev/urandom >&2 ;;
  flood) exec yes '{{"stage": "flood"}}' ;;
  big) head -c 30000000 /dev/zero; echo; head -c 30000000 /dev/zero >&2; say ;;
  child) sleep 300 & echo $! >"$NOTE"; say ;;
  hangs_with_child) sleep 300 & echo $! >"$NOTE"; trap '' TERM; while :; do sleep 0.1; done ;;
  session) setsid sleep 300 & echo $! >"$NOTE"; say ;;
  fails) sleep 0.2; echo '{{"error": {{"type": "E", "message": "CUDA out of memory."}}}}'; exit 1 ;;
  core) taskset -cp $$ >&2; say ;;
  environment) env >&2; say ;;
  place) echo "$RANK of $WORLD_SIZE" >&2; echo "$MASTER_ADDR:$MASTER_PORT" >&2; say ;;
  slow) sleep "$SLEEP"; say ;;
  limit) ulimit -c >&2; say ;;
esac
"""


@pytest.fixture
def fake(tmp_path):
    path = tmp_path / "bin" / "python"
    path.parent.mkdir()
    path.write_text(FAKE, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def cards(*behaviours, **more):
    return [{"index": n, "environment": {"FAKE": behaviour, **more}} for n, behaviour in enumerate(behaviours)]


def run(fake, *behaviours, limit_s=20.0, text="x", device="cuda", parallel=0, **more):
    return survey.each_card(fake, text, device, cards(*behaviours, **more), limit_s, parallel)


def test_one_card_that_hangs_and_one_that_crashes_leave_the_others_alone(fake):
    began = time.monotonic()
    good, hung, crashed, unread = run(fake, "good", "hang", "crash", "unread", limit_s=1.5)
    assert time.monotonic() - began < 6
    assert (good["state"], good["ok"], good["rc"]) == ("passed", True, 0)
    assert (unread["state"], unread["ok"]) == ("passed", True)
    assert (hung["state"], hung["signal"], hung["stage"], hung["pid_left"]) == ("hung", signal.SIGKILL, "reach the card", {})
    assert 1.5 <= hung["seconds"] < 5
    assert (crashed["state"], crashed["signal"], crashed["said"]) == ("crashed", signal.SIGSEGV, ["driver: bad thing"])


def test_garbage_and_much_of_it_does_no_harm(fake):
    garbage, big = run(fake, "garbage", "big", limit_s=60)
    assert garbage["state"] == "no_answer"
    assert len(json.dumps(garbage)) < 20000
    assert (big["state"], big["ok"]) == ("passed", True)


def test_a_flood_ends_at_the_deadline(fake):
    (flood,) = run(fake, "flood", limit_s=1)
    assert (flood["state"], flood["stage"]) == ("hung", "flood")


def test_a_child_that_keeps_the_output_open_is_ended_and_not_waited_for(fake, tmp_path):
    note = tmp_path / "note"
    began = time.monotonic()
    (seen,) = run(fake, "child", NOTE=str(note))
    assert seen["ok"]
    assert time.monotonic() - began < 5
    until(lambda: not alive(int(note.read_text())), 5, "its child is ended")


def test_at_the_deadline_a_card_is_ended_with_all_it_started(fake, tmp_path):
    note = tmp_path / "note"
    (seen,) = run(fake, "hangs_with_child", limit_s=1, NOTE=str(note))
    assert seen["state"] == "hung"
    until(lambda: not alive(int(note.read_text())), 5, "its child is ended")


def test_the_text_goes_through_standard_input_whole(fake):
    text = "".join(f"line {n}\n" for n in range(40000))
    (seen,) = run(fake, "reads", text=text)
    assert seen["said"] == [f"- cuda {hashlib.sha256(text.encode()).hexdigest()}"]


def test_the_environment_is_clean(fake, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://dead:1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    values = survey.environment(fake, {"A": 1, "PYTHONDONTWRITEBYTECODE": "", "NCCL_DEBUG": "INFO"}, RANK="0")
    assert sorted(values) == sorted(
        ["A", "HOME", "LANG", "LOGNAME", "NCCL_DEBUG", "OMP_NUM_THREADS", "PATH", "PYTHONDONTWRITEBYTECODE", "RANK", "USER"]
    )
    assert (values["A"], values["NCCL_DEBUG"], values["PYTHONDONTWRITEBYTECODE"]) == ("1", "INFO", "1")
    (seen,) = run(fake, "environment")
    assert not any("PROXY" in line or "CUDA" in line for line in seen["said"])


def test_a_core_is_the_only_one_that_its_test_runs_on(fake):
    core = sorted(os.sched_getaffinity(0))[-1]
    (seen,) = survey.each_card(fake, "x", "cpu", [{"index": core, "environment": {"FAKE": "core"}, "cores": [core]}], 20, 0)
    assert seen["said"][0].endswith(f"affinity list: {core}")
    assert len(os.sched_getaffinity(0)) >= 1
    assert core in os.sched_getaffinity(0)


def test_a_core_that_is_not_there_is_a_fault_of_that_core(fake):
    before = os.sched_getaffinity(0)
    wanted = [{"index": n, "environment": {"FAKE": "good"}, "cores": [n]} for n in (4095, sorted(before)[0])]
    absent, there = survey.each_card(fake, "x", "cpu", wanted, 20, 0)
    assert (card_test.card_fault(absent), there["ok"]) == ("core", True)
    assert os.sched_getaffinity(0) == before


def test_a_python_that_is_not_there_is_said():
    (seen,) = survey.each_card("/nonexistent/bin/python", "x", "cuda", cards("good"), 5, 0)
    assert (seen["state"], card_test.card_fault(seen)) == ("failed", "not_started")
    assert "No such file" in seen["error"]["message"]


def test_no_more_run_at_once_than_wanted(fake):
    began = time.monotonic()
    seen = run(fake, "slow", "slow", "slow", parallel=1, SLEEP="0.4")
    assert all(card["ok"] for card in seen)
    assert time.monotonic() - began > 1.2


def test_a_deadline_counts_from_the_start_of_each(fake):
    seen = run(fake, "slow", "slow", "slow", parallel=1, limit_s=3, SLEEP="1.1")
    assert [card["state"] for card in seen] == ["passed", "passed", "passed"]


@pytest.mark.parametrize(
    ("device", "count", "wanted", "free_mib", "cores", "expected"),
    [
        ("cuda", 8, 0, 100, 1, 8),
        ("cuda", 8, 2, 100, 1, 2),
        ("cuda", 1, 4, 100, 1, 1),
        ("cpu", 8, 0, 64000, 4, 4),
        ("cpu", 8, 0, 1100, 4, 2),
        ("cpu", 8, 0, 100, 4, 1),
        ("cpu", 8, 3, 64000, 4, 3),
    ],
)
def test_how_many_run_at_once(monkeypatch, device, count, wanted, free_mib, cores, expected):
    monkeypatch.setattr(survey, "_free_mib", lambda: free_mib)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    assert survey.at_once(device, count, wanted) == expected


def test_no_core_file_is_left(fake):
    (seen,) = run(fake, "limit")
    assert seen["said"] == ["0"]


def test_what_cannot_be_killed_is_given_up_and_named(fake, monkeypatch):
    monkeypatch.setattr(children, "STUCK_S", 0.3)
    monkeypatch.setattr(children.Child, "_signal_group", lambda self: None)
    hung, good = run(fake, "hang", "good", limit_s=1)
    pid = hung["pid_left"]["pid"]
    try:
        assert (hung["state"], hung["rc"], hung["signal"], good["state"]) == ("hung", None, None, "passed")
        assert hung["pid_left"]["state"] in "SR"
        assert card_test.card_fault(hung) == "stuck"
        assert alive(pid)
    finally:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_who_holds_a_device_file_is_named(tmp_path):
    device = tmp_path / "nvidia0"
    device.touch()
    with device.open() as stream:
        held = subprocess.Popen(["sleep", "300"], stdin=stream, start_new_session=True, env={"MODELYARD_SERVICE": "one"})
    try:
        found = survey.holders([str(device)])
        assert [(h["pid"], h["command"], h["marker"]) for h in found] == [(held.pid, "sleep 300", "one")]
    finally:
        end(held)
    assert survey.holders([str(device)]) == []
    assert survey.holders([]) == []


def test_holders_are_looked_for_when_a_card_failed(fake, tmp_path):
    device = tmp_path / "nvidia0"
    device.touch()
    with device.open():
        wanted = [{**card, "device_files": [str(device)]} for card in cards("fails", "good")]
        failing, good = survey.each_card(fake, "x", "cuda", wanted, 20, 0)
    assert [h["pid"] for h in failing["holders"]] == [os.getpid()]
    assert good["holders"] == []


# -- groups ---------------------------------------------------------------------------------------------------------------


def group(*behaviours, **more):
    ranks = [{"cards": [n], "environment": {"FAKE": behaviour, **more}} for n, behaviour in enumerate(behaviours)]
    return {"name": "one/0", "ranks": ranks}


def test_the_ranks_know_their_places_and_one_address(fake):
    (seen,) = survey.each_group(fake, "x", "cuda", [group("place", "place")], 20, [])
    first, second = (rank["said"] for rank in seen["ranks"])
    assert (first[0], second[0]) == ("0 of 2", "1 of 2")
    assert first[1] == second[1]
    assert first[1].startswith("127.0.0.1:")


def test_when_a_rank_fails_the_others_are_stopped_before_the_deadline(fake, monkeypatch):
    monkeypatch.setattr(children, "TOGETHER_S", 0.5)
    began = time.monotonic()
    (seen,) = survey.each_group(fake, "x", "cuda", [group("hang", "fails")], 60, [])
    assert time.monotonic() - began < 10
    assert [r["state"] for r in seen["ranks"]] == ["stopped", "failed"]
    assert (seen["ok"], seen["state"], card_test.first_failed(seen["ranks"])) == (False, "failed", 1)


def test_ranks_that_wait_for_each_other_end_at_the_deadline(fake):
    (seen,) = survey.each_group(fake, "x", "cuda", [group("hang", "hang")], 1, [])
    assert [r["state"] for r in seen["ranks"]] == ["hung", "hung"]
    assert seen["seconds"] >= 1


def test_a_group_with_a_card_that_failed_is_left_out(fake):
    first, second = survey.each_group(fake, "x", "cuda", [group("good"), {**group("good"), "name": "b"}], 20, [0, 7])
    assert (first["state"], first["broken"], first["ranks"]) == ("not_run", [0], [])
    assert second["state"] == "not_run"


# -- the module -----------------------------------------------------------------------------------------------------------

DRIVER = """
import json, sys
from ansible.module_utils.testing import patch_module_args
from ansible_collections.modelyard.core.plugins.modules import card_test
with patch_module_args(json.loads(sys.argv[1])):
    card_test.main()
"""


def module(fake, wanted, **more):
    """The module in a process of its own."""
    args = {"python": fake, "device": "cuda", "one_card": "x", "all_reduce": "y", "cards": wanted, **more}
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, json.dumps(args)],
        env={**os.environ, "PYTHONPATH": str(worlds.ROOT / "collections")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def answered(process):
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return json.loads(out)


def test_the_module_gives_results_and_leaves_nothing(fake, tmp_path):
    note = tmp_path / "note"
    answer = answered(module(fake, cards("session", "crash", NOTE=str(note)), groups=[group("good", "good")], deadline_s=20))
    assert [(c["index"], c["ok"], c["state"]) for c in answer["cards"]] == [(0, True, "passed"), (1, False, "crashed")]
    assert (answer["groups"][0]["state"], answer["changed"]) == ("not_run", False)
    assert answer["ended"] == [int(note.read_text())]
    assert not alive(int(note.read_text()))


def test_in_check_mode_nothing_is_run(tmp_path):
    answer = answered(module("/nonexistent", cards("good"), _ansible_check_mode=True))
    assert (answer["skipped"], answer["changed"], answer["cards"]) == (True, False, [])


def children_of(pid):
    shown = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False).stdout
    return [int(word) for word in shown.split()]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_no_test_outlives_the_module(fake, tmp_path, number):
    process = module(fake, cards("hang", "hang"), deadline_s=300)
    try:
        until(lambda: len(children_of(process.pid)) == 2, 20, "both tests run")
        tests = children_of(process.pid)
        os.kill(process.pid, number)
        process.wait(timeout=20)
        until(lambda: not any(map(alive, tests)), 5, "both tests are gone")
    finally:
        end(process)


def test_a_module_that_is_asked_to_end_ends_what_the_tests_started(fake, tmp_path):
    note = tmp_path / "note"
    process = module(fake, cards("hangs_with_child", NOTE=str(note)), deadline_s=300)
    try:
        until(lambda: note.exists() and note.read_text().strip(), 20, "the child runs")
        os.kill(process.pid, signal.SIGTERM)
        process.wait(timeout=20)
        until(lambda: not alive(int(note.read_text())), 5, "the child is gone")
    finally:
        end(process)


@pytest.mark.parametrize("name", ["one_card", "all_reduce"])
def test_a_program_is_one_that_an_old_python_reads(name):
    text = (worlds.ROOT / "roles/card_test/files" / f"{name}.py").read_text(encoding="utf-8")
    ast.parse(text, feature_version=(3, 8))
    assert "vllm" not in text
