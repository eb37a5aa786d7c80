"""The plan: from intent and survey to instances, actions and findings. A pure function; nothing here looks or touches.

`plan(intent, survey)` gives

    {services: [{name, action, runtime, model, instances, differences, advice, memory_mib, ...}], findings, runtimes, ...}

and under `gateways` those of the services, in the same form.

Which cards an instance gets is decided in choose_cards.py, what is done with it in actions.py, what the topology is worth in
advice.py.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan import (
    actions,
    advice,
    baseline,
    checkpoint,
    checks,
    choose_cards,
    gateway,
    launch,
    model,
    models,
    only,
    runtime,
    slots,
    tables,
)
from ansible_collections.modelyard.core.plugins.module_utils.plan import choice as choices
from ansible_collections.modelyard.core.plugins.module_utils.plan.checkpoint import adapters
from ansible_collections.modelyard.core.plugins.module_utils.plan.checks import lookup
from ansible_collections.modelyard.core.plugins.module_utils.plan.checks import stack as stack_checks
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import OFF, finding, noted, ordered, refusals, switched
from ansible_collections.modelyard.core.plugins.module_utils.plan.intent import instance_ports, session
from ansible_collections.modelyard.core.plugins.module_utils.plan.memory import findings as memory_findings
from ansible_collections.modelyard.core.plugins.module_utils.plan.memory import places
from ansible_collections.modelyard.core.plugins.module_utils.plan.numbers import number
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack import verdict

Findings = List[Dict[str, str]]


def plan(intent: Mapping[str, Any], survey: Mapping[str, Any]) -> Dict[str, Any]:
    """The plan of one host. `intent`: action plugin `intent`; `survey`: module `survey_host`."""
    found: Findings = []
    beside: Findings = []  # about services that this run leaves alone
    services = []
    gateways = []
    for wanted, choice in zip(intent["services"], choose_cards.choose(intent["services"], survey)):
        service, own = _service(wanted, choice, intent, survey)
        services.append(service)
        if gateway.wanted(wanted):
            entry, more = gateway.plan(wanted, service, intent, survey)
            gateways.append(entry)
            own += more
        if service["concerned"]:
            found += own
        else:
            beside += own
    for service, in_memory in zip(services, places.of_services(services, survey)):
        service["memory"] = in_memory
        about = memory_findings.findings(in_memory, service["name"], places.names(service, survey))
        (found if service["concerned"] else beside).extend(about)
    found += _shared_cards(services)
    merging = [models.merge_runtime()] if models.needs_merging(intent, survey) else []
    beside_them, own = runtime.further([*intent["runtimes"], *merging], intent, survey)
    found += own
    about_models = models.findings(intent, survey)
    found += about_models
    found += checks.findings(intent, survey, services, gateways)
    stack = verdict.host(intent, survey, [service for service in services if service["concerned"]], tables.stack())
    found += stack_checks.findings(stack, survey, services)
    told = [*memory_findings.without_explained(found), *beside]
    switched_off = sorted({f["id"] for f in told if intent["checks"].get(f["id"]) == OFF})
    found = memory_findings.without_explained(switched(found, intent["checks"])) + noted(switched(beside, intent["checks"]))
    if refusals(found):
        for service in [*services, *gateways]:
            actions.refuse(service)
    return {
        "host": survey["host"]["name"],
        "services": services,
        "gateways": gateways,
        "runtimes": _unique([s["runtime"] for s in services if s["runtime"]["path"] and s["concerned"]] + beside_them, "path"),
        "models": models.entries(intent, survey, services, beside_them[-1]["path"] if merging else ""),
        # What a run that is about models alone is refused for.
        "models_refused": refusals(switched(about_models, intent["checks"])),
        "findings": ordered(found),
        "switched_off": switched_off,
        "baseline": baseline.recorded(survey),
        "cards": _card_rows(survey),
        "stack": stack,
        "python": survey["python"]["path"],
        "digest": survey["digest"],
        "changes": [s["name"] for s in [*services, *gateways] if s["action"] in (actions.START, actions.RESTART)],
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


def _service(
    wanted: Mapping[str, Any], choice: choices.Choice, intent: Mapping[str, Any], survey: Mapping[str, Any]
) -> Tuple[Dict[str, Any], Findings]:
    where = f"modelyard_services[{wanted['name']}]"
    backend = tables.backend(wanted["backend"])
    findings: Findings = []
    chosen, own = runtime.choose(wanted, backend, intent, survey, where)
    findings += own
    table = tables.vllm(chosen["vllm_release"])
    engine = launch.engine_findings(wanted["engine"], table, where)
    findings += engine
    listing = survey["models"].get(wanted["model"]["path"])
    making, how, why = models.maker(wanted["model"]["path"], intent, survey)
    if not how:  # else it is judged when it is made
        findings += _model(wanted, listing, models.known(intent, survey), chosen["vllm_release"].partition("+")[0])
    findings += choices.findings(choice, survey, where)
    findings += advice.findings(wanted, listing, where)
    beside = [survey["models"][path] for path in adapters.paths(wanted["engine"]).values() if path in survey["models"]]
    fingerprint = model.fingerprint(listing, beside)
    cards = survey["cards"].get(wanted["backend"], []) if not backend.get("cores_as_cards") else []
    instances = []
    for index, port in enumerate(instance_ports(wanted)):
        if index in choice.left_out:
            continue
        words = [] if refusals(engine) else [f"{chosen['path']}/bin/vllm", *launch.arguments(wanted, port, table)]
        ranks = choice.ranks.get(index, [])
        devices = slots.devices(ranks, cards)
        visible = launch.visible(ranks, devices, backend, table)
        toolkit = launch.of_toolkit(wanted["backend"], survey, chosen["path"])
        environment = launch.environment(wanted, ranks, backend, intent["home"], index, visible, toolkit)
        instances.append(
            {
                "name": f"{wanted['name']}/{index}",
                "index": index,
                "port": port,
                "session": session(wanted, index),
                "cards": ranks,
                "devices": devices,
                "argv": words,
                "environment": environment,
                "digest": launch.digest(words, environment, fingerprint, wanted["key_hash"]),
            }
        )
    seen = survey["services"].get(wanted["name"])
    decided = actions.decide(wanted, instances, choice, seen, intent, fingerprint)
    findings += decided.findings
    action = actions.of_service(decided.instances)
    launched = {**wanted, "engine": launch.engine_options(wanted, table)} if table["known"] else wanted
    main_memory = _memory(wanted, backend, listing)
    service = {
        "name": wanted["name"],
        "backend": wanted["backend"],
        "supervisor": wanted["supervisor"],
        "session": wanted["name"],
        "topology": dict(wanted["topology"]),
        "listen": dict(wanted["listen"]),
        "gateway": gateway.settings(wanted),
        "model": {**wanted["model"], "fingerprint": fingerprint, "make": how, "reason": why, "from": making["source"]["from"]},
        "engine": dict(wanted["engine"]),
        "start": dict(wanted["start"]),
        "logs": dict(wanted["logs"]),
        "stop": dict(wanted["stop"]),
        "ready_timeout_s": int(wanted["ready_timeout_s"]),
        "shutdown_timeout_s": launch.shutdown_timeout(wanted, table),
        "acceptance": dict(wanted["acceptance"]),
        "load": dict(wanted["load"]),
        "secured": bool(wanted["key_hash"]),
        "runtime": chosen,
        "stack": dict(wanted["stack"]),
        "metrics": dict(table["metrics"]),
        "structured": table["structured"],
        "eager_off": launch.option("enforce_eager", False, table),
        "instances": decided.instances,
        "left_out": [{"index": index, "why": why} for index, why in sorted(choice.left_out.items())],
        "action": action,
        "concerned": only.concerns(intent["only"], wanted["name"]),
        "differences": decided.differences,
        "advice": advice.topology(launched, listing, cards, chosen["vllm_release"].partition("+")[0])
        + choices.notes(choice, backend),
        "accepted": bool(seen and seen["accepted"]) and action == actions.KEEP,
        "memory_mib": main_memory * len(instances),
        "instance_memory_mib": main_memory,
        "shm_mib": int(backend["shm_mib"]),
        "visibility": str(backend.get("visibility", "")),
        "cards": choice.judged,
        "asked_cards": choice.asked,
    }
    return service, findings


def _model(wanted: Mapping[str, Any], listing: Optional[Mapping[str, Any]], survey: Mapping[str, Any], release: str) -> Findings:
    path = wanted["model"]["path"]
    where = f"{survey['host']['name']}:{path}"
    if listing and listing["problem"]:
        what = f"user {survey['host']['user']} cannot read the model of {wanted['name']}: {listing['problem']}"
        return [finding("PF-MODEL-UNREADABLE", where, what, "let that user read the folder and all files in it")]
    if not listing or not listing["exists"]:
        do = f"put {wanted['model']['id']} there, say where it comes from (model.source), or correct model.path"
        return [finding("PF-MODEL-MISSING", where, f"the model folder of {wanted['name']} is not there", do)]
    found = checkpoint.findings(wanted, listing, survey, release)
    longest, length = model.longest_context(listing), number(wanted["engine"].get("max_model_len"))
    stretched = "hf_overrides" in wanted["engine"]  # then config.json does not decide
    if longest and length and length > longest and not stretched:
        what = f"{length} tokens are wanted, config.json of the model says {longest}"
        do = f"set at most {longest}, or give the model longer positions with hf_overrides"
        found.append(finding("PF-MODEL-CONTEXT", f"modelyard_services[{wanted['name']}].engine.max_model_len", what, do))
    return found


def _shared_cards(services: Sequence[Mapping[str, Any]]) -> Findings:
    users: Dict[Tuple[str, int], List[str]] = {}
    for service in services:
        staying = [i for i in service["instances"] if i["action"] != actions.STOP]
        for card in sorted({c for i in staying for rank in i["cards"] for c in rank}):
            users.setdefault((service["backend"], card), []).append(service["name"])
    shared = {card: names for (_, card), names in users.items() if len(names) > 1}
    if not shared:
        return []
    text = "; ".join(f"{card}: {', '.join(names)}" for card, names in shared.items())
    what = f"cards used by several services ({text})"
    return [finding("PL-CARDS-SHARED", "modelyard_services", what, "give each its own cards")]


def _memory(wanted: Mapping[str, Any], backend: Mapping[str, Any], listing: Optional[Mapping[str, Any]]) -> int:
    """Main memory that one instance needs, in MiB: its server and workers, and on CPUs weights and KV cache."""
    figures, tp = backend["memory_mib"], int(wanted["topology"]["tensor_parallel_size"])
    if not backend.get("cores_as_cards"):  # weights and KV cache lie on the cards
        return int(figures["server"] + tp * figures["worker"])
    kv = number(wanted["engine"].get("kv_cache_memory_bytes"))
    kv_mib = kv / 2**20 if kv else backend["kv_cache_default_mib"]
    weights = model.weights_mib(listing) if listing and listing["exists"] else 0.0
    return int(figures["server"] + tp * (figures["worker"] + kv_mib) + weights)
