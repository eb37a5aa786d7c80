"""Does one card compute? Read from standard input by the runtime's own Python; needs torch and nothing else of the runtime.

usage: python - KIND      KIND: cuda (NVIDIA, Hygon, AMD: all of them are cuda to torch) or cpu (the cards are cores)

The caller makes exactly one card visible. Printed are lines of JSON: {"stage": what is done next}, again and again, and at the
end {"answer": {torch, build, name, count, uuid, free_mib, total_mib, deviation, seconds}} or {"error": {type, message, seen}}.
`deviation` is the largest error of a product, divided by the largest number in it, by number format; None for no number.
"""

import json
import math
import os
import sys
import time

SIZE = 512
ROUNDS = 4
MIB = 2**20


def say(**what):
    """One line for the caller, at once."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main_memory():
    """(free, total) MiB of the host."""
    kib = {}
    with open("/proc/meminfo", encoding="ascii", errors="replace") as stream:  # noqa: PTH123
        for line in stream:
            name, _, rest = line.partition(":")
            kib[name] = int(rest.split()[0])
    return kib.get("MemAvailable", kib["MemFree"]) // 1024, kib["MemTotal"] // 1024


def look(torch, kind, seen):
    """Reach the card; what it is goes into `seen`."""
    if kind == "cpu":
        seen.update(name="CPU core", count=len(os.sched_getaffinity(0)))
        seen["free_mib"], seen["total_mib"] = main_memory()
        return "cpu"
    torch.cuda.init()
    seen["count"] = torch.cuda.device_count()
    card = torch.cuda.get_device_properties(0)
    seen["name"] = torch.cuda.get_device_name(0)
    if getattr(torch.version, "hip", None):
        seen["architecture"] = str(getattr(card, "gcnArchName", ""))
    else:
        seen["architecture"] = "sm_{}{}".format(*torch.cuda.get_device_capability(0))
    seen["uuid"] = str(getattr(card, "uuid", ""))
    free, total = torch.cuda.mem_get_info(0)
    seen["free_mib"], seen["total_mib"] = free // MIB, total // MIB
    return "cuda:0"


def deviation(torch, device, form):
    """Worst of a few products on the card against the same product in double precision on the CPU."""
    source = torch.Generator().manual_seed(4711)
    left, right = (torch.randn(SIZE, SIZE, generator=source, dtype=torch.float64).to(form) for _ in range(2))
    wanted = left.double() @ right.double()
    worst = 0.0
    for _ in range(ROUNDS):
        got = (left.to(device) @ right.to(device)).to("cpu").double()
        error = ((got - wanted).abs().max() / wanted.abs().max()).item()
        if not math.isfinite(error):
            return None
        worst = max(worst, error)
    return worst


def test(kind, seen):
    """Everything in order; raises what goes wrong."""
    began = time.monotonic()
    say(stage="import torch")
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("highest")  # shorter formats would look like wrong numbers
    seen["torch"] = torch.__version__
    seen["build"] = str(torch.version.cuda or getattr(torch.version, "hip", None) or "cpu")
    say(stage="reach the card")
    device = look(torch, kind, seen)
    say(stage="multiply")
    seen["deviation"] = {str(form).rpartition(".")[2]: deviation(torch, device, form) for form in (torch.float32, torch.float16)}
    seen["seconds"] = round(time.monotonic() - began, 3)


def main():
    """Say how it went. Ends without clearing up: what a driver does at the end of a process is no part of the test."""
    seen = {}
    try:
        test(sys.argv[1], seen)
    except Exception as exc:
        say(error={"type": type(exc).__name__, "message": str(exc)[:4000], "seen": seen})
        os._exit(1)
    say(answer=seen)
    os._exit(0)


main()
