"""What types cannot tell of where a model comes from. Pure."""

from __future__ import annotations

import posixpath
import re
import urllib.parse
from typing import Any, Dict, List, Mapping, Sequence, Tuple

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
    found += _into_itself(entry, where)
    return found + (_source(entry, source, f"{where}.source") if source["from"] else [])


def clashes(models: Sequence[Mapping[str, Any]], services: Sequence[Mapping[str, Any]]) -> List[Dict[str, str]]:
    """One folder that two entries would make in two ways: which of them had made it would be chance."""
    named = [(f"modelyard_models[{entry['id']}]", entry) for entry in models]
    named += [(f"modelyard_services[{service['name']}].model", service["model"]) for service in services]
    first: Dict[str, Tuple[str, Any]] = {}
    found = []
    for where, entry in named:
        source, merge, recipe = entry["source"], entry["merge"], entry.get("recipe", "")
        if not (source["from"] or merge["adapter"] or recipe):
            continue
        way = ({**source, "repo": (source["repo"] or entry["id"]) if source["from"] in HUBS else ""}, merge, recipe)
        before, other = first.setdefault(_plain(entry["path"]), (where, way))
        if other != way:
            what = f"{before} makes {entry['path']} in another way"
            found.append(finding("IN-VALUE", f"{where}.path", what, "give each its own folder, or leave one of the two"))
    return found


def _plain(path: str) -> str:
    return posixpath.normpath("/" + path.lstrip("/"))


def _into_itself(entry: Mapping[str, Any], where: str) -> List[Dict[str, str]]:
    """A folder that would be made from itself, and the root of the host."""
    source, merge, path = entry["source"], entry["merge"], _plain(entry["path"])
    found = []
    if path == "/":
        found.append(finding("IN-VALUE", f"{where}.path", "it is the root of the host's files", "name a folder of its own"))
    here = {"merge.base": merge["base"], "merge.adapter": merge["adapter"]}
    if source["from"] == "folder" and source["by"] == "host":
        here["source.at"] = source["at"]
    for key, other in here.items():
        if other and _plain(other) == path:
            what = f"{key} is the same folder as path, and would be written over"
            found.append(finding("IN-VALUE", f"{where}.{key}", what, "name another folder as path"))
    return found


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
