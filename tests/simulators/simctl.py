"""The command that changes a simulated machine: `simctl --help`."""

from __future__ import annotations

import argparse
import json

from simulators.control import Simulation
from simulators.faults import FAULTS
from simulators.state import Sim


def main(arguments, root) -> int:
    """Do what is asked; errors in words."""
    options = _parser().parse_args(arguments)
    simulation = Simulation(root)
    card = getattr(options, "card", None)
    if card is not None and not 0 <= card < len(simulation.machine["cards"]):
        raise SystemExit(f"there is no card {card}")
    _run(simulation, options, card, root)
    return 0


def _run(simulation, options, card, root) -> None:
    command = options.command
    if command == "faults":
        for name, (scope, vendors, usual, text) in FAULTS.items():
            print(f"{name:<20}{scope:<9}{vendors:<5}{usual!s:<12}{text}")
    elif command == "show":
        print(json.dumps(Sim(root).state, indent=1))
    elif command == "set":
        for word in options.fault:
            name, has_value, value = word.partition("=")
            simulation.set(name, _value(name, value) if has_value else None, card)
    elif command == "clear":
        for name in options.fault or [None]:
            simulation.clear(name, card)
    elif command == "memory":
        simulation.memory(options.pid, None if options.mib == "usual" else int(options.mib), card)
    elif command == "process":
        simulation.process(options.pid, int(options.mib), card, options.name)
    elif command == "util":
        simulation.util(options.percent, card)
    elif command == "persistence":
        simulation.persistence(options.mode == "on", card)
    elif command == "kmsg":
        simulation.kernel_log(options.xid, card or 0, options.pid, options.name)
    else:
        simulation.reset()


def _value(name, text):
    """A number where the fault has one, else the text: `0600` and `580.10` are none."""
    usual = FAULTS[name][2] if name in FAULTS else None
    if not isinstance(usual, int) or isinstance(usual, bool):
        return text
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise SystemExit(f"{name} needs a number, not {text}") from None


def _parser():
    parser = argparse.ArgumentParser(prog="simctl", description="Change a simulated machine.")
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name, text, needs_card=None):
        command = commands.add_parser(name, help=text)
        if needs_card is not None:
            command.add_argument("--card", type=int, required=needs_card, help="place in the machine, from 0")
        return command

    add("faults", "list the faults: name, of what, vendors, usual value, meaning")
    add("show", "print the state")
    add("reset", "as it was after installation")
    add("set", "switch faults on", False).add_argument("fault", nargs="+", metavar="FAULT[=VALUE]")
    add("clear", "switch faults off, all without a name", False).add_argument("fault", nargs="*", metavar="FAULT")
    memory = add("memory", "memory that a holder uses", False)
    memory.add_argument("pid", type=int)
    memory.add_argument("mib", help="MiB, or `usual`")
    process = add("process", "list a process that holds nothing; 0 MiB takes it away", True)
    process.add_argument("pid", type=int)
    process.add_argument("mib", type=int)
    process.add_argument("--name", default="python3")
    add("util", "load of the cards", False).add_argument("percent", type=int)
    add("persistence", "persistence mode of NVIDIA cards", False).add_argument("mode", choices=["on", "off"])
    kmsg = add("kmsg", "add the lines of an Xid to ROOT/dev/kmsg", False)
    kmsg.add_argument("xid", type=int, choices=[13, 31, 43, 48, 79, 119, 154])
    kmsg.add_argument("--pid", type=int)
    kmsg.add_argument("--name", default="python")
    return parser
