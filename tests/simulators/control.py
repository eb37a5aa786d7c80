"""Changing a simulated machine: faults, memory of processes, load, lines of the kernel log. What simctl and the tests call."""

from __future__ import annotations

from pathlib import Path

from simulators import sysroot
from simulators.faults import FAULTS
from simulators.state import EMPTY, Sim, write_json

#: Lines of the kernel log by Xid, as published ones read. {pci} has no function, {bus_id} has one.
XIDS = {
    13: ["NVRM: Xid (PCI:{pci}): 13, {who}, Graphics SM Warp Exception on (GPC 9, TPC 1, SM 1): Out Of Range Address"],
    31: [
        "NVRM: GPU at PCI:{pci}: {uuid}",
        "NVRM: Xid (PCI:{pci}): 31, {who}, Ch 00000030, intr 00000000. MMU Fault: ENGINE HOST0 HUBCLIENT_ESC faulted @ "
        "0x10_00200000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
    ],
    43: ["NVRM: Xid (PCI:{pci}): 43, {who}, Ch 00000008"],
    48: [
        "NVRM: Xid (PCI:{pci}): 48, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at "
        "partition 4, subpartition 1.",
        "NVRM: Xid (PCI:{pci}): 63, Dynamic Page Retirement: New page retired, reboot to activate (0x00000000002ce8ac).",
    ],
    79: [
        "NVRM: GPU at PCI:{pci}: {uuid}",
        "NVRM: Xid (PCI:{pci}): 79, {who}, GPU has fallen off the bus.",
        "NVRM: GPU {bus_id}: GPU has fallen off the bus.",
    ],
    119: [
        "NVRM: GPU at PCI:{pci}: {uuid}",
        "NVRM: Xid (PCI:{pci}): 119, {who}, Timeout after 6s of waiting for RPC response from GPU{index} GSP! Expected function "
        "103 (GSP_RM_ALLOC) (0x2081 0x4).",
        "NVRM: Rate limiting GSP RPC error prints for GPU at PCI:{pci} (printing 1 of every 30).  "
        "The GPU likely needs to be reset.",
    ],
    154: ["NVRM: Xid (PCI:{pci}): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"],
}


class Simulation:
    """A simulated machine that was installed in `root`."""

    def __init__(self, root):
        self.root = Path(root)
        self.bin = self.root / "bin"
        self.machine = Sim(root).machine

    def set(self, name, value=None, card=None) -> None:
        """Switch a fault on. Without `card` one that cards have is switched on for each of them."""
        self._check(name)
        scope, _, usual, _ = FAULTS[name]
        value = usual if value is None else value
        with self._change() as state:
            for faults in self._places(state, scope, card):
                faults[name] = value

    def clear(self, name=None, card=None) -> None:
        """Switch a fault off, or all of them; of one card or everywhere."""
        if name is not None:
            self._check(name)
        with self._change() as state:
            places = state["cards"] if card is None else [state["cards"][card]]
            for faults in [*(place["faults"] for place in places), *([state["faults"]] if card is None else [])]:
                for one in list(faults) if name is None else [name]:
                    faults.pop(one, None)

    def memory(self, pid, mib, card=None) -> None:
        """MiB that a holder uses, on each card it holds or on one; 0: it holds the file alone; None: the usual figure."""
        with self._change() as state:
            table = state["memory"]
            if card is None:
                table[str(pid)] = mib
            else:
                if not isinstance(table.get(str(pid)), dict):
                    table[str(pid)] = {}
                table[str(pid)][str(card)] = mib
            if mib is None and card is None:
                del table[str(pid)]

    def process(self, pid, mib, card, name="python3") -> None:
        """List a process on a card although it holds nothing, or does not exist here. 0 MiB takes it away."""
        with self._change() as state:
            rest = [entry for entry in state["processes"] if (entry["pid"], entry["card"]) != (pid, card)]
            state["processes"] = [*rest, {"pid": pid, "mib": mib, "card": card, "name": name}] if mib else rest

    def util(self, percent, card=None) -> None:
        """Load in percent."""
        with self._change() as state:
            for place in state["cards"] if card is None else [state["cards"][card]]:
                place["util"] = percent

    def persistence(self, is_on, card=None) -> None:
        """Persistence mode of NVIDIA cards; on counts as a user when a reset is asked for."""
        with self._change() as state:
            for place in state["cards"] if card is None else [state["cards"][card]]:
                place["persistence"] = is_on

    def kernel_log(self, xid, card=0, pid=None, name="python") -> None:
        """Add the lines of an Xid to ROOT/dev/kmsg, the kernel's log for whoever looks below ROOT."""
        found = self.machine["cards"][card]
        who = f"pid={pid}, name={name}" if pid else "pid='<unknown>', name=<unknown>"
        words = {**found, "pci": found["bus_id"].rpartition(".")[0], "who": who, "index": card}
        seconds = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
        with (self.root / "dev/kmsg").open("a", encoding="utf-8") as log:
            log.writelines(f"[{seconds:12.6f}] {line.format(**words)}\n" for line in XIDS[xid])

    def reset(self) -> None:
        """As it was after installation."""
        write_json(self.root / "state/state.json", EMPTY)
        (self.root / "dev").mkdir(exist_ok=True)
        (self.root / "dev/kmsg").write_text("", encoding="utf-8")
        (self.root / "state/seen.json").unlink(missing_ok=True)
        with self._change():
            pass

    def _change(self):
        # The files of the kernel follow the state.
        return Sim(self.root).change(sysroot.refresh)

    def _check(self, name) -> None:
        if name not in FAULTS:
            raise SystemExit(f"no such fault: {name}. There are: {', '.join(sorted(FAULTS))}")
        if self.machine["vendor"][:1] not in tuple(FAULTS[name][1]):
            raise SystemExit(f"{name} is not simulated for {self.machine['vendor'] or 'a machine without cards'}")

    @staticmethod
    def _places(state, scope, card):
        if card is not None:
            if scope == "machine":
                raise SystemExit("this fault is one of the machine, not of a card")
            return [state["cards"][card]["faults"]]
        return [place["faults"] for place in state["cards"]] if scope == "card" else [state["faults"]]
