"""The plan: from intent and survey to instances, actions and findings. A pure function; nothing here looks or touches.

`plan(intent, survey)` gives

    {services: [{name, action, runtime, model, instances, differences, memory_mib, ...}], findings, runtimes, models}

Actions of a service: `start` (nothing runs), `keep` (runs as wanted), `restart` (runs otherwise, and a restart is allowed),
`refused`.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan import baseline, checks, launch, model, runtime, tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.checks import lookup
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import OFF, finding, ordered, refusals, switched
from ansible_collections.modelyard.core.plugins.module_utils.plan.intent import instance_ports, number

START, KEEP, RESTART, REFUSED = "start", "keep", "restart", "refused"

Findings = List[Dict[str, str]]


def plan(intent: Mapping[str, Any], survey: Mapping[str, Any]) -> Dict[str, Any]:
    """The plan of one host. `intent`: action plugin `intent`; `survey`: module `survey_host`."""
    findings: Findings = []
    services = []
    for wanted in intent["services"]:
        service, own = _service(wanted, intent, survey)
        services.append(service)
        findings += own
    findings += _shared_cards(services)
    findings += checks.findings(intent, survey, services)
    switched_off = sorted({f["id"] for f in findings if intent["checks"].get(f["id"]) == OFF})
    findings = switched(findings, intent["checks"])
    if refusals(findings):
        for service in services:
            service["action"] = REFUSED if service["action"] != KEEP else KEEP
    return {
        "host": survey["host"]["name"],
        "services": services,
        "runtimes": _unique([s["runtime"] for s in services if s["runtime"]["path"]], "path"),
        "findings": ordered(findings),
        "switched_off": switched_off,
        "baseline": baseline.recorded(survey),
        "cards": _card_rows(survey),
        "python": survey["python"]["path"],
        "digest": survey["digest"],
        "changes": [s["name"] for s in services if s["action"] in (START, RESTART)],
    }


def _card_rows(survey: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """The accelerators as people read them."""
    return [
        {
            **{key: card[key] for key in ("index", "name", "bus_id", "memory_used_mib", "memory_total_mib", "health")},
            "backend": backend,
            "users": [lookup.process(pid, survey) for pid in lookup.named(card, survey)],
        }
        for backend in sorted(survey["accelerators"])
        if not lookup.integrated(backend, survey)
        for card in survey["cards"].get(backend, [])
    ]


def _unique(items: Sequence[Dict[str, Any]], key: str) -> List[Dict[str, Any]]:
    return list({item[key]: item for item in items}.values())


def _service(wanted: Mapping[str, Any], intent: Mapping[str, Any], survey: Mapping[str, Any]) -> Tuple[Dict[str, Any], Findings]:
    where = f"modelyard_services[{wanted['name']}]"
    backend = tables.backend(wanted["backend"])
    findings: Findings = []
    chosen, own = runtime.choose(wanted, backend, intent, survey, where)
    findings += own
    table = tables.vllm(chosen["vllm_release"])
    engine = launch.engine_findings(wanted["engine"], table, where)
    findings += engine
    listing = survey["models"].get(wanted["model"]["path"])
    findings += _model(wanted, listing, survey)
    cards, own = _cards(wanted, survey, where)
    findings += own
    fingerprint = model.fingerprint(listing)
    instances = []
    for index, port in enumerate(instance_ports(wanted)):
        words = [] if refusals(engine) else [f"{chosen['path']}/bin/vllm", *launch.arguments(wanted, port, table)]
        ranks = cards[index] if cards else []
        environment = launch.environment(wanted, ranks, backend, intent["home"])
        instances.append(
            {
                "name": f"{wanted['name']}/{index}",
                "index": index,
                "port": port,
                "cards": ranks,
                "argv": words,
                "environment": environment,
                "digest": launch.digest(words, environment, fingerprint, wanted["key_hash"]),
            }
        )
    seen = survey["services"].get(wanted["name"])
    action, differences, own = _action(wanted, instances, fingerprint, seen, intent, where)
    findings += own
    service = {
        "name": wanted["name"],
        "backend": wanted["backend"],
        "supervisor": wanted["supervisor"],
        "topology": dict(wanted["topology"]),
        "listen": dict(wanted["listen"]),
        "model": {**wanted["model"], "fingerprint": fingerprint},
        "engine": dict(wanted["engine"]),
        "ready_timeout_s": int(wanted["ready_timeout_s"]),
        "shutdown_timeout_s": launch.shutdown_timeout(wanted, table),
        "acceptance": dict(wanted["acceptance"]),
        "secured": bool(wanted["key_hash"]),
        "runtime": chosen,
        "instances": instances,
        "action": action,
        "differences": differences,
        "accepted": bool(seen and seen["accepted"]) and action == KEEP,
        "memory_mib": _memory(wanted, backend, listing),
        "shm_mib": int(backend["shm_mib"]),
        "visibility": str(backend.get("visibility", "")),
        "cards": _used(wanted, cards, survey),
        "asked_cards": list(wanted["cards"]),
    }
    return service, findings


def _model(wanted: Mapping[str, Any], listing: Optional[Mapping[str, Any]], survey: Mapping[str, Any]) -> Findings:
    path = wanted["model"]["path"]
    where = f"{survey['host']['name']}:{path}"
    if listing and listing["problem"]:
        return [
            finding(
                "PF-MODEL-UNREADABLE",
                where,
                f"user {survey['host']['user']} cannot read the model of {wanted['name']}: {listing['problem']}",
                "let that user read the folder and all files in it",
            )
        ]
    if not listing or not listing["exists"]:
        if wanted["model"]["recipe"]:
            return []
        return [
            finding(
                "PF-MODEL-MISSING",
                where,
                f"the model folder of {wanted['name']} is not there",
                f"put {wanted['model']['id']} there, or correct model.path",
            )
        ]
    missing = model.missing_files(listing)
    if missing:
        return [
            finding(
                "PF-MODEL-INCOMPLETE",
                where,
                f"the model of {wanted['name']} lacks {', '.join(missing)}",
                "copy just these files there; the rest can stay",
            )
        ]
    longest, length = model.longest_context(listing), number(wanted["engine"].get("max_model_len"))
    stretched = "hf_overrides" in wanted["engine"]  # then config.json does not decide
    if longest and length and length > longest and not stretched:
        return [
            finding(
                "PF-MODEL-CONTEXT",
                f"modelyard_services[{wanted['name']}].engine.max_model_len",
                f"{length} tokens are wanted, config.json of the model says {longest}",
                f"set at most {longest}, or give the model longer positions with hf_overrides",
            )
        ]
    return []


def _cards(wanted: Mapping[str, Any], survey: Mapping[str, Any], where: str) -> Tuple[List[List[List[int]]], Findings]:
    """Cards by instance and rank."""
    present = [c["index"] for c in survey["cards"].get(wanted["backend"], []) if c["index"] is not None]
    seen = survey["accelerators"].get(wanted["backend"])
    if not present and seen is None and not tables.backend(wanted["backend"]).get("cores_as_cards"):
        return [], []  # PL-BACKEND says it
    if not present and seen is not None and seen["tool"]["state"] != "ok":
        what = f"which cards {survey['host']['name']} has is not known: {tables.backend(wanted['backend'])['tool']} does not tell"
        return [], [finding("PL-CARDS", f"{where}.cards", what, "see the finding about that tool")]
    tp, replicas = wanted["topology"]["tensor_parallel_size"], wanted["topology"]["replicas"]
    cards = present if wanted["cards"] == ["all"] else [int(c) for c in wanted["cards"]]
    absent = sorted(set(cards) - set(present))
    needed = tp * replicas
    backend = tables.backend(wanted["backend"])
    kind = backend["card_kind"]
    if absent:
        return [], [
            finding(
                "PL-CARDS",
                f"{where}.cards",
                f"{kind} {', '.join(map(str, absent))} wanted; {survey['host']['name']} has {_list(present)}",
                "name cards that are there, or all",
            )
        ]
    if tp < 1 or replicas < 1 or len(cards) < needed:
        return [], [
            finding(
                "PL-CARDS",
                f"{where}.topology",
                f"{replicas} x tensor_parallel_size {tp} needs {needed} {kind}(s), {len(cards)} given ({_list(cards)})",
                f"lower tensor_parallel_size or replicas to fit {len(cards)}, or give more under cards",
            )
        ]
    # A rank on CPU works on a share of the cores; on accelerators it is one card, and cards that are not needed stay free.
    ranks = launch.spread(cards, needed) if backend.get("cores_as_cards") else [[card] for card in cards[:needed]]
    return [ranks[i * tp : (i + 1) * tp] for i in range(replicas)], []


def _used(wanted: Mapping[str, Any], cards: Sequence[Sequence[Sequence[int]]], survey: Mapping[str, Any]) -> List[int]:
    """Indexes that the service uses, or, where that could not be planned, those it asks for that are there."""
    if cards:
        return sorted({card for instance in cards for rank in instance for card in rank})
    present = {c["index"] for c in survey["cards"].get(wanted["backend"], [])} - {None}
    return sorted(i for i in present if wanted["cards"] == ["all"] or str(i) in wanted["cards"])


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) if numbers else "none"


def _shared_cards(services: List[Dict[str, Any]]) -> Findings:
    users: Dict[Tuple[str, int], List[str]] = {}
    for service in services:
        for card in sorted({c for i in service["instances"] for rank in i["cards"] for c in rank}):
            users.setdefault((service["backend"], card), []).append(service["name"])
    shared = {card: names for (_, card), names in users.items() if len(names) > 1}
    if not shared:
        return []
    text = "; ".join(f"{card}: {', '.join(names)}" for card, names in shared.items())
    return [
        finding(
            "PL-CARDS-SHARED",
            "modelyard_services",
            f"cards used by several services ({text})",
            "give each its own cards",
        )
    ]


def _action(
    wanted: Mapping[str, Any],
    instances: List[Dict[str, Any]],
    fingerprint: str,
    seen: Optional[Mapping[str, Any]],
    intent: Mapping[str, Any],
    where: str,
) -> Tuple[str, List[str], Findings]:
    running = {i["index"]: i for i in (seen["instances"] if seen else []) if i["alive"]}
    if not running:
        return START, [], []
    wanted_indexes = {i["index"] for i in instances}
    lines = []
    for instance in instances:
        now = running.get(instance["index"])
        if now is None:
            lines.append(f"instance {instance['index']}: not running -> running")
        elif now["digest"] != instance["digest"] and instance["argv"]:
            after = {"argv": instance["argv"], "environment": instance["environment"], "model": fingerprint}
            shown = launch.differences(now["launch"], after) or ["API key or form of the plan: another one"]
            lines += [f"instance {instance['index']} {line}" for line in shown]
    lines += [f"instance {i}: running -> gone" for i in sorted(set(running) - wanted_indexes)]
    if not lines:
        return KEEP, [], []
    if intent["restart"]:
        return RESTART, lines, []
    what = f"{wanted['name']} runs with other parameters ({'; '.join(lines)})"
    do = "nothing was restarted: run again with -e modelyard_restart=true when its users can do without it, or undo the change"
    return REFUSED, lines, [finding("PF-RESTART-NEEDED", where, what, do)]


def _ranks(wanted: Mapping[str, Any]) -> int:
    return int(wanted["topology"]["replicas"] * wanted["topology"]["tensor_parallel_size"])


def _memory(wanted: Mapping[str, Any], backend: Mapping[str, Any], listing: Optional[Mapping[str, Any]]) -> int:
    """Main memory that the service needs, in MiB: servers, workers, weights and KV cache of every instance."""
    figures = backend["memory_mib"]
    if not backend.get("cores_as_cards"):  # weights and KV cache lie on the cards
        return int(wanted["topology"]["replicas"] * figures["server"] + _ranks(wanted) * figures["worker"])
    tp, replicas = wanted["topology"]["tensor_parallel_size"], wanted["topology"]["replicas"]
    kv = number(wanted["engine"].get("kv_cache_memory_bytes"))
    kv_mib = kv / 2**20 if kv else backend["kv_cache_default_mib"]
    weights = model.weights_mib(listing) if listing and listing["exists"] else 0.0
    return int(replicas * (figures["server"] + tp * (figures["worker"] + kv_mib) + weights))
