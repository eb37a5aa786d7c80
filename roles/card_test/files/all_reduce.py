"""Do the ranks of one instance reach each other? One process a rank; read from standard input by the runtime's own Python.

usage: python - KIND LIMIT_S      KIND: cuda (NCCL or RCCL, card LOCAL_RANK of the visible ones) or cpu (gloo)

RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT stand in the environment. Every rank puts numbers of its own into a
tensor, all are added up over all ranks, and every rank checks every number. Printed are lines of JSON like one_card.py does:
{"answer": {torch, backend, bytes, wrong, first_s, seconds}}; `first_s` is the first all-reduce, which sets everything up.
"""

import datetime
import json
import os
import sys
import time

ELEMENTS = 4 * 2**20  # 16 MiB of float32
ROUNDS = 3


def say(**what):
    """One line for the caller, at once."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def test(kind, limit_s, seen):
    """Everything in order; raises what goes wrong."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    say(stage="import torch")
    import torch  # noqa: PLC0415
    from torch import distributed  # noqa: PLC0415

    torch.set_num_threads(1)
    seen.update(torch=torch.__version__, backend="nccl" if kind == "cuda" else "gloo", bytes=4 * ELEMENTS)
    device = "cpu"
    if kind == "cuda":
        say(stage="reach the card")
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
        torch.zeros(1, device=device)
    say(stage="meet the other ranks")
    # Whoever waits too long is ended from outside: a time-out in here would say less.
    distributed.init_process_group(seen["backend"], timeout=datetime.timedelta(seconds=limit_s + 60))
    say(stage="first all-reduce")
    began = time.monotonic()
    first = torch.ones(1, device=device)
    distributed.all_reduce(first)
    seen["first_s"] = round(time.monotonic() - began, 3) if first.item() == world else None
    say(stage="all-reduce")
    pattern = (torch.arange(ELEMENTS) % 127).float()
    wanted = pattern * (world * (world + 1) // 2)  # small whole numbers: exact in float32, in any order of adding
    seen["wrong"] = 0 if first.item() == world else 1
    for _ in range(ROUNDS):
        numbers = (pattern * (rank + 1)).to(device)
        began = time.monotonic()
        distributed.all_reduce(numbers)
        got = numbers.to("cpu")
        seen["seconds"] = round(time.monotonic() - began, 4)
        seen["wrong"] += int((got != wanted).sum())
    say(stage="part from the other ranks")
    distributed.barrier()


def main():
    """Say how it went. Ends without clearing up: all ranks are through, and what a library does at its end is no part of it."""
    seen = {}
    try:
        test(sys.argv[1], float(sys.argv[2]), seen)
    except Exception as exc:
        say(error={"type": type(exc).__name__, "message": str(exc)[:4000], "seen": seen})
        os._exit(1)
    say(answer=seen)
    os._exit(0)


main()
