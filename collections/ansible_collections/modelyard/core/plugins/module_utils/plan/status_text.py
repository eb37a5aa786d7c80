"""What people read about drift: a table of all instances of all hosts, then each line of drift. Pure functions."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan import text


def count(hosts: Mapping[str, Mapping[str, Any]]) -> int:
    """Lines of drift of all hosts."""
    return sum(len(host["drift"]) + sum(len(service["drift"]) for service in host["services"]) for host in hosts.values())


def age(at: Optional[float], now: float) -> str:
    """`3 h ago`; `never` for None."""
    if at is None:
        return "never"
    seconds = max(0.0, now - at)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit} ago"
    return f"{int(seconds)} s ago"


def report(hosts: Mapping[str, Mapping[str, Any]], now: float) -> str:
    """`hosts`: {name: {services, drift, problem}}; `problem` says why a host was not looked at, empty when it was."""
    rows: List[Sequence[Any]] = [("host", "service", "state", "port", "pid", "started", "deployed", "accepted", "drift")]
    for name, host in hosts.items():
        for service in host["services"]:
            rows += _rows(name, service, now)
        if not host["services"]:
            state = "not looked at" if host["problem"] else "nothing is deployed"
            rows.append((name, "-", state, *("-",) * 5, len(host["drift"]) or "-"))
    silent = [name for name, host in hosts.items() if host["problem"]]
    more = f"; not looked at: {', '.join(silent)}" if silent else ""
    lines = [f"Status of {len(hosts)} host(s): {count(hosts)} line(s) of drift{more}", *text.table(rows)]
    for name, host in hosts.items():
        if host["problem"]:
            lines += [f"  {name}", f"      {host['problem']}"]
        for service in host["services"]:
            lines += [shown for item in service["drift"] for shown in _lines(f"{name}:{service['name']}", item)]
        lines += [shown for item in host["drift"] for shown in _lines(name, item)]
    return "\n".join(lines)


def _rows(host: str, service: Mapping[str, Any], now: float) -> List[Sequence[Any]]:
    """A row for each instance, and one for a service without any."""
    deployed = str(service["deployed"].get("at") or "unknown")
    accepted = service["accepted"]
    missing = "no" if accepted["at"] is None else "lost"
    whole = sum(1 for item in service["drift"] if item["instance"] is None)
    rows: List[Sequence[Any]] = []
    for place, instance in enumerate(service["instances"]):
        own = sum(1 for item in service["drift"] if item["instance"] == instance["index"]) + (0 if place else whole)
        started = age(instance["started_at"], now) if instance["pid"] else "-"
        verdict = missing if instance["accepted_at"] is None else age(instance["accepted_at"], now)
        words = (instance["state"], instance["port"] or "-", instance["pid"] or "-", started, deployed, verdict, own or "-")
        rows.append((host, f"{service['name']}/{instance['index']}", *words))
    if not rows:
        rows.append((host, service["name"], "no instances", "-", "-", "-", deployed, missing, whole or "-"))
    return rows


def _lines(where: str, item: Dict[str, Any]) -> List[str]:
    place = where if item["instance"] is None else f"{where}/{item['instance']}"
    return [f"  {item['kind']}  {place}", f"      {item['what']}", f"      -> {item['do']}"]
