"""Steps that ask for no token: the processes, the port, /health, the list of models."""

from __future__ import annotations

from typing import Any, Dict

from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder.answer import last
from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder.step import (
    Instance,
    Service,
    Step,
    Verdict,
    failed,
    get,
    passed,
)
from ansible_collections.modelyard.core.plugins.module_utils.plan import lora
from ansible_collections.modelyard.core.plugins.module_utils.plan.numbers import number

LOG_THEN_DEPLOY = "read the end of its log, then deploy"


def process(service: Service, instance: Instance, seen: Dict[str, Any]) -> Verdict:
    """API server, engine core and one worker a rank, all ours."""
    comms = seen["comms"]
    if not seen["alive"]:
        return failed("the API server is not running", "ended", LOG_THEN_DEPLOY, True)
    tp = service["topology"]["tensor_parallel_size"]
    workers = sum(c.startswith("VLLM::Worker") for c in comms)
    # Before 0.10.1 no process has a title: then only how many there are can be counted.
    titled = any(c.startswith("VLLM::") for c in comms)
    if titled and not any(c.startswith("VLLM::EngineCor") for c in comms):
        return failed(f"no EngineCore below the API server ({', '.join(comms)})", "ended", LOG_THEN_DEPLOY, True)
    if titled and tp > 1 and workers != tp:
        return failed(f"{workers} workers for tensor_parallel_size {tp}", "ended", LOG_THEN_DEPLOY, True)
    if not titled and len(comms) - seen["helpers"] < 2:
        return failed(f"no process below the API server ({', '.join(comms)})", "ended", LOG_THEN_DEPLOY, True)
    shown = f"pid {seen['leader']}, {len(comms)} processes"
    return passed(f"{shown}, {workers} worker(s)" if titled else shown)


def port(_: Service, instance: Instance, seen: Dict[str, Any]) -> Verdict:
    """The port is listened on, and by this very service."""
    if not seen["listening"]:
        do = "look at its log: an engine opens the port when it is ready"
        return failed(f"nothing listens on port {instance['port']}", "closed", do)
    if not seen["ours"]:
        owner = f"pid {seen['pid']}" if seen["pid"] else "a process that this user may not look into"
        what = f"port {instance['port']} is held by {owner}, which is not of this service"
        return failed(what, "stranger", "ask its owner, or give the service another port; the process is left alone")
    return passed(f"port {instance['port']}, pid {seen['pid']}")


def health(_: Service, __: Instance, seen: Dict[str, Any]) -> Verdict:
    """/health answers 200. A hung engine does so, too: the steps after it decide. 503 is vLLM's word for a dead engine."""
    answer, none = last(seen)
    if answer["status"] == 503:
        return failed("HTTP 503: the API server says that its engine is dead", "engine_dead", LOG_THEN_DEPLOY, True)
    return none or passed("200")


def models(service: Service, _: Instance, seen: Dict[str, Any]) -> Verdict:
    """/v1/models shows the wanted id, all adapters, and the wanted max_model_len when the inventory names one."""
    answer, none = last(seen)
    if none:
        return none
    deploy = "something else than the plan runs there: compare with playbooks/status.yml, then deploy"
    try:
        entries = {str(m["id"]): m for m in answer["body"]["data"]}
    except (KeyError, TypeError):
        return failed(f"the reply is not a list of models: {str(answer['body'])[:120]!r}", "shape", deploy)
    entry = entries.get(service["model"]["id"])
    if entry is None:
        return failed(f"{service['model']['id']} is not listed, only {', '.join(entries)}", "model", deploy)
    absent = [name for name in lora.modules(service["engine"]) if name not in entries]
    if absent:
        what = f"adapter {', '.join(absent)} is not listed, only {', '.join(entries)}"
        return failed(
            what, "model", "read the engine's log at its start for why; a deploy with other lora_modules needs a restart"
        )
    length, wanted = entry.get("max_model_len"), number(service["engine"].get("max_model_len"))
    if wanted and wanted > 0 and length != wanted:
        return failed(f"max_model_len is {length}, {wanted} was wanted", "max_model_len", deploy)
    return passed(f"{entry['id']}, max_model_len {length}")


STEPS = (
    Step("process", lambda s, i: {"kind": "process"}, process, quick=True, loads=False),
    Step("port", lambda s, i: {"kind": "port"}, port, quick=True, loads=False),
    Step("health", get("/health"), health, quick=True, loads=False),
    Step("models", get("/v1/models"), models, quick=True, loads=False),
)
