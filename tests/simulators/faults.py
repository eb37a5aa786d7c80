"""The faults by name, and those that strike before a tool prints anything."""

from __future__ import annotations

import os
import random
import signal
import sys
import time

# Scope (card, machine, or either: of a card when one is named, else of the machine), vendors by their first letter, the value
# when none is given, meaning.
FAULTS = {
    "lost": ("card", "nha", "line", "the card stopped answering: line, unknown_error, all (tool prints nothing else), fields"),
    "gone_from_bus": ("card", "nha", "line", "lost, and its PCI function is gone as well; values as for lost"),
    "absent": ("card", "nha", True, "not found when the machine booted: in no list, the cards behind it move up"),
    "needs_reset": ("card", "n", True, "fields read `GPU requires reset`, recovery action Reset"),
    "field_error": ("card", "n", "vital", "fields read `Unknown Error` (`ERR!` in the table): vital or sensor"),
    "ecc": ("card", "n", 7, "that many uncorrectable errors, a row waiting to be remapped"),
    "memory_stays": ("card", "nha", 30000, "MiB in use without a process"),
    "late_release": ("card", "nha", 5, "seconds that memory stays after its holder was seen to be gone"),
    "reset_refused": ("card", "n", "in_use", "in_use, not_supported or primary_gpu"),
    "reset_useless": ("card", "n", True, "a reset is said to have worked, and clears nothing"),
    "util_na": ("card", "nha", True, "utilisation reads N/A"),
    "denied": ("either", "nha", "0600", "device files of root with this mode"),
    "process_list_blank": ("machine", "nh", True, "nobody can say who is on the cards"),
    "missing_commas": ("machine", "h", True, "`--showpower --json` without commas between the power keys"),
    "version_mismatch": ("machine", "n", "580.126.09", "the library on disk has this version, the driver is the old one"),
    "driver_not_loaded": ("machine", "nha", True, "no module in the kernel, no device files"),
    "no_devices": ("machine", "nha", True, "the tool finds no card; all are on the bus"),
    "nvml_error": ("machine", "n", "Unknown Error", "Failed to initialize NVML, with this reason"),
    "hang": ("machine", "nha", True, "the tool never ends and ignores SIGTERM; a word: only when an argument begins with it"),
    "hang_s": ("machine", "nha", 30, "the tool ignores SIGTERM for so many seconds, then answers"),
    "slow": ("machine", "nha", 5, "the tool answers after so many seconds"),
    "crash": ("machine", "nha", True, "the tool ends by SIGABRT; a word: only when an argument begins with it"),
    "garbage": ("machine", "nha", True, "the tool prints noise and exits with 0"),
}


def strikes(value, arguments) -> bool:
    """Whether a fault that may be bound to an argument strikes this call."""
    return value is not None and (value is True or any(word.startswith(str(value)) for word in arguments))


def before_output(sim, arguments) -> None:
    """Hang, sleep, abort or print noise, as the state has it."""
    hang_s = sim.fault("hang_s")
    if strikes(sim.fault("hang"), arguments) or hang_s:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        while strikes(sim.fault("hang"), arguments):
            signal.pause()
        time.sleep(float(hang_s))
    if sim.fault("slow"):
        time.sleep(float(sim.fault("slow")))
    if strikes(sim.fault("crash"), arguments):
        import resource  # noqa: PLC0415  only here, for the speed of all other calls

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.abort()
    if sim.fault("garbage"):
        noise = random.Random(7)
        sys.stdout.buffer.write(bytes(noise.randrange(256) for _ in range(2048)))
        sys.stdout.flush()
        raise SystemExit(0)
