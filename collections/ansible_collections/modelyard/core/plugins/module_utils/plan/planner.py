"""The plan: from intent and survey to instances, actions and findings. A pure function; nothing here looks or touches.

`plan(intent, survey)` gives

    {services: [{name, action, runtime, model, instances, differences, memory_mib, ...}], findings, runtimes, models}

Actions of a service: `start` (nothing runs), `keep` (runs as wanted), `restart` (runs otherwise, and a restart is allowed),
`refused`.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan import launch, model, tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding, ordered, refusals
from ansible_collections.modelyard.core.plugins.module_utils.plan.intent import instance_ports, number
from ansible_collections.modelyard.core.plugins.module_utils.plan.runtime_id import runtime_id

START, KEEP, RESTART, REFUSED = "start", "keep", "restart", "refused"
DISK_SPARE_MIB = 1024
MEMORY_SPARE_MIB = 1024  # the first request compiles kernels

Findings = List[Dict[str, str]]


def plan(intent: Mapping[str, Any], survey: Mapping[str, Any]) -> Dict[str, Any]:
    """The plan of one host. `intent`: action plugin `intent`; `survey`: module `survey_host`."""
    findings: Findings = _host_findings(intent, survey)
    services = []
    for wanted in intent["services"]:
        service, own = _service(wanted, intent, survey)
        services.append(service)
        findings += own
    findings += _capacity(services, survey)
    findings += _shared_cards(services)
    known = {s["name"] for s in services}
    findings += [
        finding(
            "PF-SERVICE-NOT-IN-INVENTORY",
            f"{survey['host']['name']}:{intent['home']}/services/{name}",
            f"the service {name} runs here, but the inventory does not name it",
            f"leave it, or take it down: playbooks/teardown.yml -e teardown_service={name}",
        )
        for name in sorted(set(survey["services"]) - known)
        if survey["services"][name]["pids"]
    ]
    if refusals(findings):
        for service in services:
            service["action"] = REFUSED if service["action"] != KEEP else KEEP
    return {
        "host": survey["host"]["name"],
        "services": services,
        "runtimes": _unique([s["runtime"] for s in services], "path"),
        "findings": ordered(findings),
        "changes": [s["name"] for s in services if s["action"] in (START, RESTART)],
    }


def _unique(items: Sequence[Dict[str, Any]], key: str) -> List[Dict[str, Any]]:
    return list({item[key]: item for item in items}.values())


def _service(wanted: Mapping[str, Any], intent: Mapping[str, Any], survey: Mapping[str, Any]) -> Tuple[Dict[str, Any], Findings]:
    where = f"modelyard_services[{wanted['name']}]"
    backend = tables.backend(wanted["backend"])
    findings: Findings = []
    runtime, own = _runtime(wanted, backend, intent, survey, where)
    findings += own
    table = tables.vllm(runtime["vllm_release"])
    engine = launch.engine_findings(wanted["engine"], table, where)
    findings += engine
    listing = survey["models"].get(wanted["model"]["path"])
    findings += _model(wanted, listing, survey)
    cards, own = _cards(wanted, survey, where)
    findings += own
    fingerprint = model.fingerprint(listing)
    instances = []
    for index, port in enumerate(instance_ports(wanted)):
        words = [] if engine else [f"{runtime['path']}/bin/vllm", *launch.arguments(wanted, port, table)]
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
    findings += _ports(wanted, instances, survey)
    seen = survey["services"].get(wanted["name"])
    findings += _leftovers(wanted, seen, survey)
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
        "shutdown_timeout_s": launch.shutdown_timeout(wanted),
        "acceptance": dict(wanted["acceptance"]),
        "secured": bool(wanted["key_hash"]),
        "runtime": runtime,
        "instances": instances,
        "action": action,
        "differences": differences,
        "accepted": bool(seen and seen["accepted"]) and action == KEEP,
        "memory_mib": _memory(wanted, backend, listing),
        "shm_mib": int(backend["shm_mib"]),
    }
    return service, findings


def _runtime(
    wanted: Mapping[str, Any],
    backend: Mapping[str, Any],
    intent: Mapping[str, Any],
    survey: Mapping[str, Any],
    where: str,
) -> Tuple[Dict[str, Any], Findings]:
    name = wanted["runtime"] or backend["runtime"]
    known = tables.runtime(name)
    findings: Findings = []
    if known is None:
        known = tables.runtime(backend["runtime"])
        assert known is not None, backend["runtime"]
        findings.append(
            finding(
                "PL-RUNTIME-UNKNOWN",
                f"{where}.runtime",
                f"there is no runtime {name}",
                f"known: {', '.join(tables.runtime_names())}",
            )
        )
    python = survey["python"]
    path = wanted["runtime_path"] or f"{intent['runtimes_dir']}/{runtime_id(known.name, known.digest, python['version'])}"
    seen = survey["runtimes"].get(path) or {}
    if seen.get("error"):
        # A half-made one of ours is made again; one that is whole, or somebody else's, is not touched.
        if seen.get("complete") or wanted["runtime_path"]:
            findings.append(
                finding(
                    "PF-RUNTIME-BROKEN",
                    f"{survey['host']['name']}:{path}",
                    f"this runtime cannot import vllm: {seen['error']}",
                    "name another one with runtime_path"
                    if wanted["runtime_path"]
                    else "something changed it after it was made: remove that folder, and the next deploy makes it again",
                )
            )
    elif wanted["runtime_path"] and not seen.get("exists"):
        findings.append(
            finding(
                "PF-RUNTIME-BROKEN",
                f"{survey['host']['name']}:{path}",
                "there is no Python environment with vllm in this folder",
                f"correct {where}.runtime_path or leave it out",
            )
        )
    found = str(seen.get("vllm", ""))
    if wanted["runtime_path"] and found and found.partition("+")[0] != known.vllm_release:
        findings.append(
            finding(
                "PF-RUNTIME-RELEASE",
                f"{survey['host']['name']}:{path}",
                f"it holds vLLM {found}; the options of {wanted['name']} were planned for {known.vllm_release}",
                f"set {where}.runtime to one of that release ({', '.join(tables.runtime_names())}), or use another folder",
            )
        )
    if not wanted["runtime_path"] and not seen.get("complete") and python["short"] not in known.pythons:
        findings.append(
            finding(
                "PF-PYTHON",
                f"{survey['host']['name']}:{python['path']}",
                f"it is Python {python['version']}; the runtime {known.name} exists for {', '.join(known.pythons)}",
                "set modelyard_python to a right one on this host",
            )
        )
    return (
        {
            "name": known.name,
            "path": path,
            "ours": not wanted["runtime_path"],
            "vllm_release": known.vllm_release,
            "present": bool(seen.get("complete") or wanted["runtime_path"]),
            "digest": known.digest,
            "disk_mib": known.disk_mib,
        },
        findings,
    )


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
    present = [c["index"] for c in survey["cards"]]
    tp, replicas = wanted["topology"]["tensor_parallel_size"], wanted["topology"]["replicas"]
    cards = present if wanted["cards"] == ["all"] else [int(c) for c in wanted["cards"]]
    absent = sorted(set(cards) - set(present))
    needed = tp * replicas
    kind = survey["card_kind"]
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
    ranks = launch.spread(cards, needed)
    return [ranks[i * tp : (i + 1) * tp] for i in range(replicas)], []


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) if numbers else "none"


def _shared_cards(services: List[Dict[str, Any]]) -> Findings:
    users: Dict[int, List[str]] = {}
    for service in services:
        for card in sorted({c for i in service["instances"] for rank in i["cards"] for c in rank}):
            users.setdefault(card, []).append(service["name"])
    shared = {card: names for card, names in users.items() if len(names) > 1}
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


def _ports(wanted: Mapping[str, Any], instances: List[Dict[str, Any]], survey: Mapping[str, Any]) -> Findings:
    found = []
    for instance in instances:
        busy = survey["ports"].get(str(instance["port"]))
        if not busy or busy["service"] == wanted["name"]:
            continue
        owner = (
            f"the service {busy['service']} of this project (pid {busy['pid']})"
            if busy["service"]
            else f"pid {busy['pid']} of user {busy['user']} ({busy['command']})"
            if busy["pid"]
            else f"a process of user {busy['user']} that this user may not look into"
        )
        found.append(
            finding(
                "PF-PORT-BUSY",
                f"{survey['host']['name']}:{instance['port']}",
                f"the port of {instance['name']} is in use by {owner}",
                f"ask that user, or choose another base_port for {wanted['name']}",
            )
        )
    return found


def _leftovers(wanted: Mapping[str, Any], seen: Optional[Mapping[str, Any]], survey: Mapping[str, Any]) -> Findings:
    if not seen:
        return []
    found = []
    if seen["leftovers"]:
        lines = [f"{p['pid']} {p['comm']} ({p['user']}, state {p['state']}, parent {p['ppid']})" for p in seen["leftovers"]]
        found.append(
            finding(
                "PF-LEFTOVER",
                f"{survey['host']['name']}:{wanted['name']}",
                f"processes of an earlier run live on without their API server: {'; '.join(lines)}",
                f"end exactly these with playbooks/teardown.yml -e teardown_service={wanted['name']}, then deploy again",
            )
        )
    if seen["suspects"]:
        lines = [f"{p['pid']} {p['command']} ({p['user']}; {', '.join(p['signs'])})" for p in seen["suspects"]]
        found.append(
            finding(
                "PF-SUSPECT",
                f"{survey['host']['name']}:{wanted['name']}",
                f"looks related, but one sign is not enough: {'; '.join(lines)}",
                "nothing: they are left alone",
            )
        )
    return found


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


def _memory(wanted: Mapping[str, Any], backend: Mapping[str, Any], listing: Optional[Mapping[str, Any]]) -> int:
    """Main memory that the service needs, in MiB: servers, workers, weights and KV cache of every instance."""
    figures = backend["memory_mib"]
    tp, replicas = wanted["topology"]["tensor_parallel_size"], wanted["topology"]["replicas"]
    kv = number(wanted["engine"].get("kv_cache_memory_bytes"))
    kv_mib = kv / 2**20 if kv else backend["kv_cache_default_mib"]
    weights = model.weights_mib(listing) if listing and listing["exists"] else 0.0
    return int(replicas * (figures["server"] + tp * (figures["worker"] + kv_mib) + weights))


def _capacity(services: List[Dict[str, Any]], survey: Mapping[str, Any]) -> Findings:
    """Memory and disk of the host against all that this plan would add to it."""
    found: Findings = []
    host = survey["host"]
    fresh = [s for s in services if s["action"] in (START, REFUSED) and not _any_alive(s, survey)]
    need = sum(s["memory_mib"] for s in fresh)
    if need and need + MEMORY_SPARE_MIB > host["memory_available_mib"]:
        found.append(
            finding(
                "PF-MEMORY",
                host["name"],
                f"about {need} MiB of main memory are needed for {', '.join(s['name'] for s in fresh)}, "
                f"{host['memory_available_mib']} MiB are free of {host['memory_total_mib']}",
                "free memory, lower kv_cache_memory_bytes, or start fewer ranks",
            )
        )
    disk = sum(r["disk_mib"] for r in _unique([s["runtime"] for s in services], "path") if not r["present"])
    if disk and disk + DISK_SPARE_MIB > survey["disk_free_mib"]:
        found.append(
            finding(
                "PF-DISK",
                f"{host['name']}:{survey['disk_path']}",
                f"making the runtime needs about {disk} MiB, {survey['disk_free_mib']} MiB are free",
                "free space there, or set modelyard_runtimes_dir to a larger disk",
            )
        )
    shm = max((s["shm_mib"] for s in fresh), default=0)
    if shm > host["shm_free_mib"]:
        found.append(
            finding(
                "PF-SHM",
                f"{host['name']}:/dev/shm",
                f"{host['shm_free_mib']} MiB are free, the engine's processes need at least {shm} MiB to talk to each other",
                "remove stale segments that nobody holds, or mount /dev/shm larger",
            )
        )
    return found


def _any_alive(service: Dict[str, Any], survey: Mapping[str, Any]) -> bool:
    seen = survey["services"].get(service["name"])
    return bool(seen) and any(i["alive"] for i in seen["instances"])


def _host_findings(intent: Mapping[str, Any], survey: Mapping[str, Any]) -> Findings:
    found: Findings = []
    name = survey["host"]["name"]
    if survey["home_problem"]:
        found.append(
            finding(
                "PF-HOME",
                f"{name}:{intent['home']}",
                f"user {survey['host']['user']} cannot work there: {survey['home_problem']}",
                "give that user the folder, or set modelyard_home to one of its own",
            )
        )
    if survey["home_shared_with"]:
        found.append(
            finding(
                "PF-HOME-SHARED",
                f"{name}:{intent['home']}",
                f"services of another machine, {survey['home_shared_with']}, run from this very folder",
                "give each host a modelyard_home on a disk of its own; if that machine is gone, remove its services' run folders",
            )
        )
    holder = survey["lock"]
    if holder and holder.get("run") != intent["run"]:
        found.append(
            finding(
                "PF-LOCK-HELD",
                f"{name}:{intent['home']}/lock",
                f"another run holds the lock: {holder['what']} by {holder['by']} since {holder['since']}",
                f"wait for it; when that run has died on its control node, remove {name}:{intent['home']}/lock",
            )
        )
    return found
