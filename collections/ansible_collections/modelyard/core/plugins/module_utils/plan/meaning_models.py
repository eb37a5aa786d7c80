"""What types cannot tell of where a model comes from. Pure."""

from __future__ import annotations

import re
import urllib.parse
from typing import Any, Dict, List, Mapping

from ansible_collections.modelyard.core.plugins.module_utils.plan import model_files
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.plan.intent import unusable_paths

HUBS = ("huggingface", "modelscope")
REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")


def beside(entry: Mapping[str, Any], where: str) -> List[Dict[str, str]]:
    """An entry of modelyard_models: it must say how it is made, or it is of no use."""
    found = unusable_paths({"path": entry["path"]}, f"{where}.") + findings(entry, where)
    if not entry["source"]["from"] and not entry["merge"]["adapter"]:
        what, do = "nothing says where this model comes from", "set source.from, or merge.base and merge.adapter"
        found.append(finding("IN-VALUE", where, what, do))
    return found


def findings(entry: Mapping[str, Any], where: str) -> List[Dict[str, str]]:
    """Of `source` and `merge` of any model."""
    source, merge = entry["source"], entry["merge"]
    ways = [
        name for name, said in (("source", source["from"]), ("merge", merge["adapter"]), ("recipe", entry.get("recipe"))) if said
    ]
    found = []
    if len(ways) > 1:
        what = f"{' and '.join(ways)} are both set, and each would make the same folder"
        found.append(finding("IN-VALUE", where, what, "leave one of them"))
    if bool(merge["base"]) != bool(merge["adapter"]):
        what, do = "a merge wants two folders", "set both merge.base and merge.adapter"
        found.append(finding("IN-VALUE", f"{where}.merge", what, do))
    found += unusable_paths({"base": merge["base"], "adapter": merge["adapter"]}, f"{where}.merge.")
    return found + (_source(entry, source, f"{where}.source") if source["from"] else [])


def _source(entry: Mapping[str, Any], source: Mapping[str, Any], where: str) -> List[Dict[str, str]]:
    found = []
    kind, at = source["from"], source["at"]
    repo = source["repo"] or entry["id"]
    if kind in HUBS and not REPO.fullmatch(repo):
        what = f"{repo!r} is no name of a model on a hub"
        found.append(finding("IN-VALUE", f"{where}.repo", what, "write it as OWNER/NAME, for example Qwen/Qwen3-14B"))
    if kind == "folder":
        found += unusable_paths({"at": at}, f"{where}.") if at else [_at(where, "/srv/models/Qwen3-14B")]
    elif kind == "mirror" and not at:
        found.append(_at(where, "https://mirror.example/models/Qwen3-14B"))
    elif at:
        parts = urllib.parse.urlsplit(at)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            what, do = f"{at!r} is no address", "write it as https://host/path"
            found.append(finding("IN-VALUE", f"{where}.at", what, do))
        if "@" in parts.netloc:
            # Its text would stand in plans and manifests.
            what, do = "the address holds a login", f"give it as model_tokens: {{{kind}: ...}} from a vault"
            found = [finding("IN-SECRET", f"{where}.at", what, do)]
    below = source["subfolder"].strip("/")
    if below and not model_files.safe(below):
        what = f"{source['subfolder']!r} leads out of the source"
        found.append(finding("IN-VALUE", f"{where}.subfolder", what, "write a path below it, for example checkpoint-500"))
    return found


def _at(where: str, example: str) -> Dict[str, str]:
    return finding("IN-VALUE", f"{where}.at", "it is not said where the files are", f"for example at: {example}")
