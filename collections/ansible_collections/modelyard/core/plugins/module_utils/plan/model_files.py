"""Which files of a source a model needs, what a folder lacks of them, and whether that is reason to stage it. Pure functions.

An entry of a source: {name, size (None: it does not say), sha256, git (the hash by which Git knows the file), url}.
"""

from __future__ import annotations

import fnmatch
from pathlib import PurePosixPath
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan import model

#: What a start reads, beside weights. Without one of them an engine ends, or answers otherwise. `*.pt`: heads of BGE-M3.
NEEDED = ("*.json", "*.jinja", "*.model", "*.tiktoken", "merges.txt", "vocab.txt", "*.py", "*.pt")
#: Weights, the best form first: of several only one is taken.
WEIGHTS = ("*.safetensors", "*.bin", "*.gguf")
#: Nice to have: that they cannot be fetched is worth a note.
EXTRA = ("LICENSE*", "NOTICE*", "USE_POLICY*", "README.md", "MODELYARD*")
#: Never asked for: second copies of the weights in other forms, and what a training keeps for itself.
STRAY = (
    *("original/*", "onnx/*", "openvino/*", "coreml/*", "metal/*", "gguf/*", ".*", "*/.*", "__MACOSX/*", "._*"),
    *("*.pth", "*.h5", "*.msgpack", "*.ot", "*.onnx", "tf_model*", "flax_model*", "rust_model*"),
    *("optimizer.*", "scheduler.pt", "rng_state*", "training_args.bin", "trainer_state.json", "trainer_log.*"),
    *("all_results.json", "train_results.json", "eval_results.json", "global_step*", "runs/*", "checkpoint-*/*"),
)
SECOND_COPY = ("consolidated*", "*/consolidated*")
ADAPTER = "adapter_config.json"


class Chosen(NamedTuple):
    """`needed` must arrive; `extra` may fail; `unsafe`: names that would lead out of the folder."""

    needed: List[Dict[str, Any]]
    extra: List[Dict[str, Any]]
    unsafe: List[str]


def choose(entries: Sequence[Mapping[str, Any]], include: Sequence[str], exclude: Sequence[str]) -> Chosen:
    """What is fetched. `include` and `exclude` are the inventory's patterns, and win; what is included so is no condition."""
    unsafe = [str(entry["name"]) for entry in entries if not safe(entry["name"])]
    named = [dict(entry) for entry in entries if safe(entry["name"]) and not _matches(entry["name"], exclude)]
    asked = [entry for entry in named if _matches(entry["name"], include)]
    usual = [entry for entry in named if not _matches(entry["name"], STRAY) and entry not in asked]
    weights = _weights(usual)
    needed = [entry for entry in usual if _matches(entry["name"], NEEDED) or entry in weights]
    extra = [entry for entry in usual if entry not in needed and _matches(entry["name"], EXTRA)]
    return Chosen(sorted(needed, key=_order), sorted([*extra, *asked], key=_order), unsafe)


def _weights(entries: Sequence[Dict[str, Any]]) -> List[Dict[str, Any]]:
    for pattern in WEIGHTS:
        found = [entry for entry in entries if _matches(entry["name"], (pattern,))]
        usual = [entry for entry in found if not _matches(entry["name"], SECOND_COPY)]
        if found:
            return usual or found
    return []


def _order(entry: Mapping[str, Any]) -> Tuple[bool, str]:
    """Small files first: a wrong config or tokenizer is known before the gigabytes come."""
    return is_weight(entry["name"]), str(entry["name"])


def is_weight(name: str) -> bool:
    """Is it one of the large ones?"""
    return _matches(name, WEIGHTS)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    """By its whole name, or in whatever folder it lies."""
    base = PurePosixPath(name).name
    return any(fnmatch.fnmatchcase(name, p) or ("/" not in p and fnmatch.fnmatchcase(base, p)) for p in patterns)


def safe(name: Any) -> bool:
    """Does this name of a source stay in the folder that it is to lie in?"""
    if not isinstance(name, str) or not name or "\\" in name or any(ord(letter) < 32 for letter in name):
        return False
    parts = name.split("/")
    return not name.startswith("/") and not any(part in ("", ".", "..") for part in parts) and parts[0] not in (".cache", ".git")


def lacking(entries: Sequence[Mapping[str, Any]], there: Mapping[str, int]) -> List[str]:
    """What a start would lack after all of `entries` have come to what is `there` ({name: size}); known before the first byte.

    An adapter is no model, and not judged.
    """
    sizes = {**there, **{str(entry["name"]): int(entry["size"] or 1) for entry in entries}}
    if sizes.get(ADAPTER) and not sizes.get("config.json"):
        return []
    return model.missing_files({"files": sizes, "shards": []})


def differing(entry: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """Why a file that is there is not what the source has; empty when it is. `known`: {size, sha256, git} of what is there."""
    if entry["size"] is not None and known["size"] != entry["size"]:
        return f"{known['size']} bytes, the source has {entry['size']}"
    for kind in ("sha256", "git"):
        if entry.get(kind) and known.get(kind) and known[kind] != entry[kind]:
            return "its hash is not the one that the source tells"
    return ""


def reason(wanted: Mapping[str, Any], listing: Optional[Mapping[str, Any]]) -> str:
    """Why a model is to be staged from its source, in words; empty when it is there, or has no source.

    Only what is missing or damaged counts: a model is never renewed because its source has moved on.
    """
    if not wanted["source"]["from"]:
        return ""
    if not listing or not listing["exists"] or not listing["files"]:
        return "it is not there"
    missing = [] if listing["adapter"] else model.missing_files(listing)
    if listing["staging"]:
        return "an earlier staging did not come to its end"
    if missing:
        return f"it lacks {', '.join(missing)}"
    return f"damaged: {', '.join(sorted(listing['damaged']))}" if listing["damaged"] else ""


def of_another(wanted: Mapping[str, Any], listing: Optional[Mapping[str, Any]]) -> str:
    """What was staged there, where that is something else than what is wanted now; empty otherwise."""
    staged = (listing or {}).get("staged")
    if not staged or not wanted["source"]["from"]:
        return ""
    repo = wanted["source"]["repo"] or wanted["id"]
    revision = wanted["source"]["revision"]
    hub = wanted["source"]["from"] in ("huggingface", "modelscope") and staged.get("from") in ("huggingface", "modelscope")
    if hub and staged.get("repo") != repo:
        return f"{staged.get('repo')}"
    if hub and revision and revision not in (staged.get("revision"), staged.get("asked")):
        return f"revision {staged.get('asked') or staged.get('revision')}"
    return ""
