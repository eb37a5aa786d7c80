"""What is kept of an acceptance that failed: verdicts, requests and replies, processes, cards, new lines of the kernel."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process import evidence, identity, stop
from ansible_collections.modelyard.core.plugins.module_utils.survey import counters, probe, walk

_LIMIT = re.compile(r"max_model_len (\d+)")


def reason(step: Mapping[str, Any]) -> str:
    """What the folder is called after: the step, or for a prompt that was too long the limit."""
    limit = _LIMIT.search(str(step["detail"])) if step["cause"] == "context" else None
    return f"failed_ctx{limit.group(1)}" if limit else f"failed_{step['id']}"


def keep(
    home: str, service: str, failing: Mapping[str, Any], entries: Sequence[Mapping[str, Any]], walked: walk.Walk
) -> Tuple[str, List[str]]:
    """(the folder, what could not be kept). `failing`: the entry that the folder is named after."""
    documents: Dict[str, str] = {}
    shown = [{key: value for key, value in entry.items() if key != "evidence"} for entry in entries]
    documents["verdicts.json"] = json.dumps(shown, indent=1)
    documents["replies.json"] = json.dumps({f"{e['id']}/{e['instance']}": e["evidence"] for e in entries}, indent=1, default=str)
    for file, make in (
        ("processes.json", _processes),
        ("cards.json", _cards),
        ("kernel.log", _kernel),
        ("counters.json", _counters),
    ):
        try:
            documents[file] = make(home, service, walked)
        except Exception as exc:  # evidence may not hide the failure it documents
            documents[file] = f"could not be looked at: {type(exc).__name__}: {exc}\n"
    folder, problems = evidence.keep(home, service, reason(failing), documents)
    return str(folder), problems


def _processes(home: str, service: str, _: walk.Walk) -> str:
    return json.dumps([identity.describe(found) for found in identity.census(stop.claim(home, service))], indent=1)


def _cards(_: str, __: str, walked: walk.Walk) -> str:
    return json.dumps(walk.rows(walked), indent=1)


def _counters(_: str, __: str, walked: walk.Walk) -> str:
    """The figures of /metrics now, by instance; empty for one that does not answer."""
    names = probe.names(walked.plan)
    seen = {index: counters.read(probe.address(watch.state), names) for index, watch in walked.watches.items()}
    return json.dumps(seen, indent=1)


def _kernel(_: str, __: str, walked: walk.Walk) -> str:
    lines = [str(event["line"]) for event in walked.kernel.look()]
    return "\n".join(lines or [walked.kernel.why or "nothing about cards, memory or engines since the acceptance began"]) + "\n"
