"""Files of a model: what is missing, damaged, or named and not there. Pure."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping

from ansible_collections.modelyard.core.plugins.module_utils.plan import model
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding

#: `model-00002-of-00004.safetensors`: a part, and how many there are.
PART = re.compile(r"-(?P<part>[0-9]{4,6})-of-(?P<whole>[0-9]{4,6})\.(?:safetensors|bin)$")
FEW = 5
TEMPLATE = "take it from the model's publisher (chat_template.jinja, or in tokenizer_config.json), or set engine.chat_template"


def findings(wanted: Mapping[str, Any], listing: Mapping[str, Any], where: str) -> List[Dict[str, str]]:
    """What of the files an engine would trip over, or would not notice."""
    name, found = wanted["name"], []
    missing = [*model.missing_files(listing), *(part for part in parts_missing(listing) if part not in listing["shards"])]
    if missing:
        what = f"the model of {name} lacks {', '.join(missing)}"
        found.append(finding("PF-MODEL-INCOMPLETE", where, what, "copy just these files there; the rest can stay"))
    if listing["damaged"]:
        listed = "; ".join(f"{file}: {words}" for file, words in sorted(listing["damaged"].items())[:FEW])
        more = len(listing["damaged"]) - FEW
        what = f"files of the model of {name} are damaged: {listed}" + (f"; and {more} more" if more > 0 else "")
        found.append(finding("PF-MODEL-DAMAGED", where, what, "fetch just these files again; the rest can stay"))
    if listing["absent"]["count"]:
        first = ", ".join(listing["absent"]["first"])
        what = (
            f"the index of the model of {name} names {listing['absent']['count']} tensor(s) that the file beside it does not "
            f"hold: {first}. Index and files are of different checkpoints"
        )
        found.append(finding("PF-MODEL-DAMAGED", where, what, "fetch the index and the weights again from one place"))
    if not _talks(wanted) or not listing["files"].get("tokenizer_config.json"):
        return found
    what = f"the model of {name} has no chat template: /v1/chat/completions would answer 400"
    if listing["template"]:
        what = f"Jinja cannot read the chat template of the model of {name} ({listing['template_problem']})"
    if listing["template"] and not listing["template_problem"]:
        return found
    return [*found, finding("PF-MODEL-TEMPLATE", where, what, TEMPLATE)]


def parts_missing(listing: Mapping[str, Any]) -> List[str]:
    """Parts that the names of the others speak of. Without an index an engine loads what is there, and starts with gaps."""
    missing: Dict[str, None] = {}
    for file in listing["files"]:
        match = PART.search(file)
        if not match or "/" in file:
            continue
        digits = len(match.group("part"))
        for part in range(1, min(int(match.group("whole")), 9999) + 1):
            name = file[: match.start("part")] + f"{part:0{digits}d}" + file[match.end("part") :]
            if not listing["files"].get(name):
                missing[name] = None
    return list(missing)


def _talks(wanted: Mapping[str, Any]) -> bool:
    """Is it asked in chats? Not when it makes vectors, and not when it has a template from elsewhere."""
    engine = wanted["engine"]
    return engine.get("runner", "generate") in ("generate", "auto") and not engine.get("chat_template")
