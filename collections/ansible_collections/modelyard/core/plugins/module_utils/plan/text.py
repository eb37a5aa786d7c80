"""What people read: the plan, refusals, differences and the summary, as plain text. Pure functions."""

from __future__ import annotations

import json
import shlex
import textwrap
from typing import Any, Collection, Dict, List, Mapping, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan import acceptance_text, shortened
from ansible_collections.modelyard.core.plugins.module_utils.plan.actions import SERVED
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import ORDER, REFUSE, count, grouped, ordered, refusals
from ansible_collections.modelyard.core.plugins.module_utils.plan.memory.line import memory_line
from ansible_collections.modelyard.core.plugins.module_utils.survey.http import reachable

#: Columns that a terminal has as a rule; lines of advice are broken there.
WIDTH = 100
#: So many instances are shown one by one.
FEW = 2


def table(rows: Sequence[Sequence[Any]], indent: str = "  ") -> List[str]:
    """Rows as aligned columns; the first row is the heading."""
    words = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in words) for i in range(len(words[0]))]
    return [(indent + "  ".join(cell.ljust(w) for cell, w in zip(row, widths))).rstrip() for row in words]


def findings(found: Sequence[Dict[str, str]]) -> List[str]:
    """Each finding in three lines: what, where, what to do."""
    lines = []
    for item in ordered(found):
        lines += [
            f"  {item['severity']}  {item['id']}  {item['where']}",
            f"      {item['what']}",
            f"      -> {item['do']}",
        ]
    return lines


def refusal(subject: str, found: Sequence[Dict[str, str]], touched: str = "Nothing was changed.") -> str:
    """One line for a refused run whose findings were shown already: their ids, and what was touched so far."""
    ids = ", ".join(dict.fromkeys(f["id"] for f in refusals(found)))
    return f"{subject} was refused: {ids}. What was found and what to do stands above; docs/checks.md explains each id. {touched}"


def plan(plan: Mapping[str, Any]) -> str:
    """The plan of one host."""
    lines = [f"Plan for {plan['host']}"]
    rows: List[Sequence[Any]] = [("service", "action", "instance", "cards", "port", "engine", "memory")]
    for service in plan["services"]:
        rows += _instances(service)
    for entry in plan["gateways"]:
        engine, instance = f"gateway {entry['kind']}", entry["instances"][0]
        rows.append((entry["of"], instance["action"], "entry", "-", instance["port"], engine, f"~{entry['memory_mib']} MiB"))
    lines += table(rows) if len(rows) > 1 else ["  no services: modelyard_services is empty for this host"]
    for runtime in plan["runtimes"]:
        lines.append(f"  runtime {runtime['path']} ({'there' if runtime['present'] else 'to be made'})")
    lines += cards(plan["cards"])
    for service in plan["services"]:
        lines.append(f"  model   {service['model']['path']} ({_presence(service['model'])})")
    served = [service["model"]["path"] for service in plan["services"]]
    for entry in plan["models"]:
        if entry["path"] not in served:
            lines.append(f"  model   {entry['path']} ({_presence({**entry, 'fingerprint': entry['there']})})")
    for service in plan["services"]:
        lines.append(f"  memory  {service['name']}: {memory_line(service['memory'])}")
    for service in [*plan["services"], *plan["gateways"]]:
        lines += [f"  change  {service['name']}: {line}" for line in service["differences"]]
    for service in plan["services"]:
        for line in service["advice"]:
            words = f"  advice  {service['name']}: {line}"
            lines += textwrap.wrap(words, WIDTH, subsequent_indent=" " * 10, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def _instances(service: Mapping[str, Any]) -> List[Sequence[Any]]:
    """A row for each instance, also for those that the plan goes on without."""
    engine = f"vLLM {service['runtime']['vllm_release']}, TP={service['topology']['tensor_parallel_size']}"
    memory = f"~{service['instance_memory_mib']} MiB"
    rows = {
        i["index"]: (service["name"], i["action"], i["index"], ranks(i["cards"]) or "-", i["port"], engine, memory)
        for i in service["instances"]
    }
    for left in service["left_out"]:
        index = left["index"]
        rows[index] = (service["name"], "left out", index, "-", service["listen"]["base_port"] + index, engine, "-")
    return [rows[index] for index in sorted(rows)]


def ranks(cards: Sequence[Sequence[int]]) -> str:
    """The cards of an instance by rank: `0 | 1`, of cores `0-15 | 16-31`."""
    return " | ".join(shortened.numbers(rank) for rank in cards)


def cards(found: Sequence[Mapping[str, Any]]) -> List[str]:
    """The accelerators of a host: who is on them, how full they are, how they are."""
    if not found:
        return []
    rows: List[Sequence[Any]] = [("card", "name", "bus", "memory", "health", "used by")]
    for card in found:
        known = card["memory_used_mib"] is not None and card["memory_total_mib"] is not None
        memory = f"{card['memory_used_mib']} of {card['memory_total_mib']} MiB" if known else "unknown"
        index = "?" if card["index"] is None else card["index"]
        rows.append((index, card["name"] or "?", card["bus_id"] or "?", memory, card["health"], "; ".join(card["users"]) or "-"))
    return table(rows)


def report(hosts: Mapping[str, Mapping[str, Any]]) -> str:
    """All findings of all hosts in one place. `hosts`: {name: {cards, services, findings, switched_off}} in order."""
    rows: List[Sequence[Any]] = [("host", "cards", "services", "refuse", "warn", "note", "verdict")]
    every = [{**f, "where": _with_host(name, f["where"])} for name, host in hosts.items() for f in host["findings"]]
    for name, host in hosts.items():
        severities = [f["severity"] for f in host["findings"]]
        verdict = "refused" if REFUSE in severities else "ready"
        services = ", ".join(host["services"]) or "-"
        rows.append((name, host["cards"] or "-", services, *(severities.count(s) or "-" for s in ORDER), verdict))
    lines = [f"Findings of {len(hosts)} host(s): {count(every)}", *table(rows)]
    for item in grouped(every):
        places = item["places"]
        more = f" and {len(places) - 3} more" if len(places) > 3 else ""
        lines += findings([{**item, "where": ", ".join(places[:3]) + more}])
    off = sorted({id for host in hosts.values() for id in host["switched_off"]})
    if off:
        lines.append(f"  Found as well, but switched off by modelyard_checks: {', '.join(off)}")
    return "\n".join(lines)


def _with_host(host: str, where: str) -> str:
    """Places in the inventory are the same for many hosts: the host is put before them."""
    return where if where == host or where.startswith(f"{host}:") else f"{host} {where}"


def card_summary(found: Sequence[Mapping[str, Any]]) -> str:
    """`2 x NVIDIA GeForce RTX 4090`; cards that give no name are counted as unknown."""
    names = [str(card["name"] or "unknown") for card in found]
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def _url(host: str, port: int) -> str:
    address = reachable(host)
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


def _presence(model: Mapping[str, Any]) -> str:
    if model["make"] == "stage":
        return f"to be staged from {model['from']}: {model['reason']}"
    if model["make"]:
        return "to be merged" if model["make"] == "merge" else "to be made"
    return "there" if model["fingerprint"] else "missing"


def acceptance(steps: Sequence[Mapping[str, Any]]) -> List[str]:
    """The acceptance ladder as a table."""
    return table(acceptance_text.rows(steps, FEW))


def summary(plan: Mapping[str, Any], results: Sequence[Mapping[str, Any]], home: str, command: str = "ansible-playbook") -> str:
    """What runs where, the acceptance, a line to try it, how to stop it, where the logs are.

    `results`: {service, steps} of every ladder that was walked; there may be several of one service.
    """
    lines: List[str] = []
    for service in plan["services"]:
        served = [i for i in service["instances"] if i["action"] in SERVED]
        if not served:
            continue
        base = f"{home}/services/{service['name']}"
        urls = [_url(service["listen"]["host"], i["port"]) for i in served]
        serves = f"{service['name']} serves {service['model']['id']} on {plan['host']}"
        entry = service.get("gateway") or {}
        if entry:
            lines += [f"{serves}: {_url(entry['host'], entry['port'])}", *_entry(entry)]
            serves = "  behind it"
        if len(served) <= FEW:
            lines += [f"{serves}: {', '.join(urls)}"]
        else:
            rows = [(i["index"], url, ranks(i["cards"]), i["session"]) for i, url in zip(served, urls)]
            lines += [
                f"{serves}{': ' if entry else ' with '}{len(served)} instances",
                *table([("instance", "address", "cards", "name"), *rows]),
            ]
        if service["left_out"]:
            lines += [f"  left out: instance {', '.join(str(left['index']) for left in service['left_out'])}"]
        steps = [step for result in results if result["service"] == service["name"] for step in result["steps"]]
        if steps:
            lines += ["Acceptance", *acceptance(steps)]
        lines += _not_walked(served, {step["instance"] for step in steps})
        # Double quotes around the key's file: the shell reads it; everything else is taken as it stands.
        key = f' -H "Authorization: Bearer $(cat {shlex.quote(base + "/api_key")})"' if service["secured"] else ""
        if entry:
            urls = [_url(entry["host"], entry["port"])]
        hello = {"model": service["model"]["id"], "max_tokens": 16, "messages": [{"role": "user", "content": "hello"}]}
        body = shlex.quote(json.dumps(hello))
        lines += [
            "Try it",
            f"  curl -s {urls[0]}/v1/chat/completions{key} -H 'Content-Type: application/json' -d {body}",
            f"Logs, on {plan['host']}",
            *_logs(base, [i["index"] for i in served]),
            "Stop it",
            f"  {command} playbooks/teardown.yml -e teardown_service={service['name']}",
        ]
    return "\n".join(lines)


def _entry(gateway: Mapping[str, Any]) -> List[str]:
    """Of which kind the gateway is, and where it can be looked at."""
    shown = f"; its status, on the host itself: http://127.0.0.1:{gateway['admin_port']}/gateway/status"
    return [f"  gateway {gateway['kind']}{shown if gateway['kind'] == 'modelyard' else ''}"]


def _not_walked(served: Sequence[Mapping[str, Any]], walked: Collection[int]) -> List[str]:
    """What is known of instances that no ladder of this run was walked for."""
    rest = [i for i in served if i["index"] not in walked]
    earlier, never = ([i["index"] for i in rest if bool(i["accepted"]) is proven] for proven in (True, False))
    which = f"instance {shortened.numbers(earlier)} " if walked or never else ""
    lines = []
    if earlier:
        lines.append(f"Acceptance: {which}passed earlier, by these very processes (playbooks/acceptance.yml runs it again)")
    if never:
        which = f"instance {shortened.numbers(never)} " if walked or earlier else ""
        lines.append(f"Acceptance: {which}not proven, and not asked in this run (playbooks/acceptance.yml asks)")
    return lines


def _logs(base: str, indexes: Sequence[int]) -> List[str]:
    """Places of the logs; of many instances as the shell writes them."""
    if len(indexes) <= FEW:
        return [f"  {base}/instance-{index}/logs/current.log" for index in indexes]
    whole = list(indexes) == list(range(indexes[0], indexes[-1] + 1))
    braces = f"{indexes[0]}..{indexes[-1]}" if whole else ",".join(map(str, indexes))
    return [f"  {base}/instance-{{{braces}}}/logs/current.log"]
