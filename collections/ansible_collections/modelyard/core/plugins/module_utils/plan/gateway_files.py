"""What a deploy writes for a gateway, as data: the files of any kept service, its configuration, and its program. Pure."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping

from ansible_collections.modelyard.core.plugins.module_utils.plan import files, gateway

#: Templates of engines, as the role of the gateway finds them.
ENGINES = "../../service/templates/"
#: A gateway has no clients of its own name.
NOT_FOR_GATEWAYS = ("client.env", "api_key")


def of_gateway(planned: Mapping[str, Any], host: files.Host) -> Dict[str, Any]:
    """As files.of_service; `texts` has the configuration too, which is `reloaded` where it changes under a running gateway."""
    made = files.of_service(planned, host)
    texts = [text for text in made["texts"] if text["path"].rpartition("/")[2] not in NOT_FOR_GATEWAYS]
    for batch in made["rolled"]:  # a gateway is restarted as a whole, so its files can be there before
        texts += [text for one in batch for text in one["texts"]]
    for text in texts:
        if "template" in text:
            text["template"] = ENGINES + text["template"]
    touched = planned["action"] not in files.UNTOUCHED
    return {
        **made,
        "of": planned["of"],
        "rolled": [],
        "restarted": _restarted(made),
        "texts": texts + (_own(planned) if touched else []),
    }


def _restarted(made: Mapping[str, Any]) -> List[Dict[str, Any]]:
    return [{key: one[key] for key in ("name", "index", "digest")} for batch in made["rolled"] for one in batch]


def _own(planned: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """The configuration of its kind. What belongs to another kind goes: nobody shall take it for the one in force."""
    spec, folder = planned["gateway"], planned["gateway"]["run_dir"].rpartition("/")[0]
    kind, values = spec["kind"], {"gateway": spec}
    wanted = [gateway.CONFIG[kind]]
    if kind != gateway.OURS:
        wanted.append(gateway.PROXY)
    if kind == "nginx":
        wanted.append("backends.conf")
    found: List[Dict[str, Any]] = [
        {"path": f"{folder}/{name}", "mode": "0644", "template": f"{name}.j2", "vars": values} for name in wanted
    ]
    others = {*gateway.CONFIG.values(), gateway.PROXY, "backends.conf"} - set(wanted)
    found += [{"path": f"{folder}/{name}", "state": "absent"} for name in sorted(others)]
    spec_text = json.dumps(spec, indent=4, sort_keys=True) + "\n"
    found.append({"path": f"{folder}/{gateway.SPEC}", "mode": "0644", "content": spec_text})
    found.append({"path": f"{folder}/{gateway.PACKAGE}", "mode": "0644", "program": "gateway"})
    return found
