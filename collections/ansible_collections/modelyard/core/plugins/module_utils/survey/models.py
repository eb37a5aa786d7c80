"""A model's folder on a host, as it lies there. Standard library only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.process.staging import place
from ansible_collections.modelyard.core.plugins.module_utils.survey import adapter, safetensors

INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
#: Files that an engine reads as JSON.
JSONS = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "preprocessor_config.json", *INDEXES)
#: What Git writes in place of a large file that it has not fetched.
POINTER, POINTER_BYTES = b"version https://git-lfs", 1024
TEMPLATE_BYTES = 2**17
#: So many names of tensors are brought back of a long list.
FEW = 5


def model_listing(path: str) -> Dict[str, Any]:
    """A model folder: `files` by relative name and size, `shards` that its index names, `config` (config.json), and

    tensors   what the weights hold, summed up (safetensors.summed); None where no header could be read
    damaged   what is wrong with files: {name: words}
    absent    names of tensors that the index places in a file that lacks them: {count, first}
    template  the chat template as it lies there; empty where there is none. `template_problem` is filled in by who has Jinja
    adapter   what an adapter's folder holds (adapter.look); None for a model
    staged    what the manifest says of the source; None without one. `staging`: who is at work there, or was when it broke off
    changed   files that were written after they were hashed; those of another length are damaged

    `problem` says what this user may not read; the rest then holds what it may.
    """
    folder = Path(path)
    listing: Dict[str, Any] = {"path": path, "exists": False, "problem": "", "files": {}, "shards": [], "config": {}}
    listing.update(tensors=None, damaged={}, absent={"count": 0, "first": []}, template="", adapter=None, template_problem="")
    listing.update(staged=None, staging=None, changed=[])
    try:
        listing["exists"] = folder.is_dir()
        for file in sorted(folder.rglob("*")) if listing["exists"] else ():
            inside = file.relative_to(folder)
            if file.is_file() and inside.parts[0] not in (".cache", ".git"):
                listing["files"][str(inside)] = file.stat().st_size
                os.close(os.open(str(file), os.O_RDONLY))
    except OSError as exc:
        listing["problem"] = str(exc)
    index: Dict[str, Any] = {}
    for name in INDEXES:
        index = _mapping(layout.read_json(folder / name))
        if index:
            listing["shards"] = sorted({file for file in _mapping(index.get("weight_map")).values() if isinstance(file, str)})
            break
    listing["config"] = _mapping(layout.read_json(folder / "config.json"))
    listing.update(_weights(folder, listing, _mapping(index.get("weight_map"))))
    listing["damaged"].update(_texts(folder, listing["files"]))
    listing["template"] = _template(folder)
    listing["adapter"] = adapter.look(folder)
    listing.update(_written_down(folder, listing))
    return listing


def _written_down(folder: Path, listing: Mapping[str, Any]) -> Dict[str, Any]:
    """The manifest of a staging against what lies there, by lengths and times alone: cheap enough for every look."""
    found: Dict[str, Any] = {"staging": place.staging(folder), "staged": None, "changed": []}
    manifest = place.read(folder)
    if not manifest:
        return found
    for name, known in place.files_of(manifest).items():
        size = listing["files"].get(name)
        if size is not None and size != known["size"]:
            listing["damaged"].setdefault(name, f"it has {size} bytes, {known['size']} were staged")
        elif size is not None and not place.unchanged(folder / name, known):
            found["changed"].append(name)
    for name, words in (manifest.get("damaged") or {}).items():
        listing["damaged"].setdefault(name, str(words))
    return {**found, "staged": manifest["source"]}


def _texts(folder: Path, files: Mapping[str, int]) -> Dict[str, str]:
    """Files beside the weights that are not what their name says: no JSON, or a pointer in place of the file."""
    found = {}
    for name, size in files.items():
        pointed = 0 < size < POINTER_BYTES and _begin(folder / name).startswith(POINTER)
        if pointed:
            found[name] = "it is a pointer of Git LFS: the file itself was not fetched (git lfs pull)"
        elif name in JSONS and size and layout.read_json(folder / name) is None:
            begin = _begin(folder / name).lstrip()[:1]
            found[name] = "it is a web page, as a server sends it in place of a file" if begin == b"<" else "it is no JSON"
    return found


def _begin(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(64)
    except OSError:
        return b""


def _template(folder: Path) -> str:
    """The chat template; of several the one named default. What transformers 5 reads, in its order."""
    try:
        path = folder / "chat_template.jinja"
        if path.is_file():
            return path.read_text(encoding="utf-8", errors="replace")[:TEMPLATE_BYTES]
    except OSError:
        return ""
    for name in ("chat_template.json", "tokenizer_config.json"):
        said = (layout.read_json(folder / name) or {}).get("chat_template")
        if isinstance(said, list):
            named = {str(entry.get("name")): entry.get("template") for entry in said if isinstance(entry, dict)}
            said = named.get("default") or next(iter(named.values()), "")
        if isinstance(said, str) and said:
            return said[:TEMPLATE_BYTES]
    return ""


def _weights(folder: Path, listing: Mapping[str, Any], placed: Mapping[str, Any]) -> Dict[str, Any]:
    """What the headers of the weights say; see model_listing. `placed`: the index, file by tensor."""
    names = [name for name in weight_files(listing) if name.endswith(".safetensors") and name in listing["files"]]
    damaged: Dict[str, str] = {}
    held: Dict[str, Dict[str, safetensors.Tensor]] = {}
    for name in names:
        try:
            header = safetensors.read(folder / name)
        except OSError as exc:
            damaged[name] = exc.strerror or str(exc)
            continue
        held[name] = dict(header.tensors)
        if header.problem:
            damaged[name] = header.problem
    lacking = [tensor for tensor, file in placed.items() if file in held and file not in damaged and tensor not in held[file]]
    found: List[Tuple[str, safetensors.Tensor]] = [item for name in names for item in held.get(name, {}).items()]
    return {
        "tensors": safetensors.summed(found, layers(listing["config"])) if found else None,
        "damaged": damaged,
        "absent": {"count": len(lacking), "first": sorted(lacking)[:FEW]},
    }


def weight_files(listing: Mapping[str, Any]) -> List[str]:
    """Files of the weights that an engine reads: those of the index, else those in the folder itself. `consolidated` ones are a
    second copy in Mistral's own form, which is only read where nothing else is there.
    """
    if listing["shards"]:
        return list(listing["shards"])
    found = [name for name in listing["files"] if name.endswith(".safetensors") and "/" not in name]
    usual = [name for name in found if not name.startswith(("consolidated", "adapter_"))]
    return usual or found


def layers(config: Mapping[str, Any]) -> Optional[int]:
    """How many layers config.json counts, in the part that writes text; None where it does not say."""
    for part in (*(config.get(key) for key in ("text_config", "llm_config", "language_config")), config):
        value = part.get("num_hidden_layers") if isinstance(part, dict) else None
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _mapping(value: Any) -> Dict[str, Any]:
    return value if isinstance(value, dict) else {}
