"""From intent to the command line and environment of one instance, for the pinned vLLM release. Pure functions."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Dict, List, Mapping

from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.plan.intent import nearest
from ansible_collections.modelyard.core.plugins.module_utils.process.identity import MARKER

#: The same for every engine: nothing is fetched at run time, nothing is reported home, processes stay recognisable.
ENVIRONMENT = {
    "SPT_NOENV": "1",  # setproctitle would overwrite the memory behind /proc/PID/environ, and with it the marker
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "PYTHONUNBUFFERED": "1",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
}
#: Seconds that the engine may use to finish open requests at a stop, where the release has the option and nothing is set.
SHUTDOWN_TIMEOUT_S = 15


def engine_findings(engine: Mapping[str, Any], table: Mapping[str, Any], where: str) -> List[Dict[str, str]]:
    """Keys of `engine` that the pinned release does not have, each with its successor or the nearest right name."""
    found = []
    known = {name for names in table["options"].values() for name in names}
    for key in engine:
        place = f"{where}.engine.{key}"
        if key in table["owned"]:
            what = f"{key} is not set under engine"
            found.append(finding("PL-ENGINE-KEY-OWNED", place, what, table["owned"][key]))
        elif key in table["removed"]:
            what = f"vLLM {table['release']} has no option {key}"
            found.append(finding("PL-ENGINE-KEY-REMOVED", place, what, table["removed"][key]))
        elif key not in known:
            found.append(
                finding(
                    "PL-ENGINE-KEY-UNKNOWN",
                    place,
                    f"vLLM {table['release']} has no option {key}{nearest(key, known - set(table['owned']))}",
                    "write engine keys as vLLM names its options, with underscores",
                )
            )
        elif key in table["options"]["switch"] + table["options"]["flag"] and not isinstance(engine[key], (bool, type(None))):
            found.append(finding("PL-ENGINE-VALUE", place, f"{engine[key]!r} is neither true nor false", "write true or false"))
    return found


def option(key: str, value: Any, table: Mapping[str, Any]) -> List[str]:
    """One engine key as command-line words. `None` leaves the option out, so a host can undo what a group set."""
    flag = "--" + key.replace("_", "-")
    options = table["options"]
    if value is None:
        return []
    if key in options["switch"]:
        return [flag if value else "--no-" + flag[2:]]
    if key in options["flag"]:
        return [flag] if value else []
    if key in options["list"] and value == []:
        return []
    if key in options["list"]:
        return [flag, *[_word(v) for v in (value if isinstance(value, list) else [value])]]
    return [flag, _word(value)]


def _word(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return json.dumps(value, sort_keys=True)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def arguments(service: Mapping[str, Any], port: int, table: Mapping[str, Any]) -> List[str]:
    """The words after `vllm`, each option once, in a fixed order."""
    engine = dict(service["engine"])
    if "shutdown_timeout" in table["options"]["value"]:
        engine.setdefault("shutdown_timeout", SHUTDOWN_TIMEOUT_S)
    words = ["serve", service["model"]["path"], "--served-model-name", service["model"]["id"]]
    words += ["--host", service["listen"]["host"], "--port", str(port)]
    words += ["--tensor-parallel-size", str(service["topology"]["tensor_parallel_size"])]
    for key in sorted(engine):
        words += option(key, engine[key], table)
    return words


def shutdown_timeout(service: Mapping[str, Any]) -> float:
    """Seconds that the engine of this service may take to finish open requests at a stop."""
    wanted = service["engine"].get("shutdown_timeout", SHUTDOWN_TIMEOUT_S)
    return float(wanted) if isinstance(wanted, (int, float)) else 0.0


def spread(cards: List[int], ranks: int) -> List[List[int]]:
    """Cards over ranks, evenly and in order; what does not divide stays unused."""
    share = len(cards) // ranks
    return [cards[i * share : (i + 1) * share] for i in range(ranks)]


def _ranges(cores: List[int]) -> str:
    return ",".join(str(c) for c in cores)


def environment(service: Mapping[str, Any], cards: List[List[int]], backend: Mapping[str, Any], home: str) -> Dict[str, str]:
    """Environment of one instance; `cards` holds the cards of each of its ranks."""
    cache = f"{home}/cache"
    values = {
        **ENVIRONMENT,
        MARKER: service["name"],
        "XDG_CACHE_HOME": cache,
        "XDG_CONFIG_HOME": f"{cache}/config",
        "HF_HOME": f"{cache}/huggingface",
        "TORCHINDUCTOR_CACHE_DIR": f"{cache}/torchinductor",
        "TRITON_CACHE_DIR": f"{cache}/triton",
        **backend["environment"],
    }
    if backend.get("cores_as_cards"):
        values["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(_ranges(rank) for rank in cards)
        if service["engine"].get("kv_cache_memory_bytes") is None:
            values["VLLM_CPU_KVCACHE_SPACE"] = str(backend["kv_cache_default_mib"] // 1024)
    elif cards:
        values[backend["visibility"]] = _ranges([card for rank in cards for card in rank])
    values.update({str(k): str(v) for k, v in service["environment"].items() if v is not None})
    values[MARKER] = service["name"]
    return values


def digest(words: List[str], environment: Mapping[str, str], model: str, key_hash: str) -> str:
    """One short hash over everything that a running engine was started with; `key_hash` is a slow hash of its API key."""
    text = json.dumps([words, sorted(environment.items()), model, key_hash])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def differences(now: Mapping[str, Any], wanted: Mapping[str, Any]) -> List[str]:
    """What differs between two launches ({argv, environment, model}), one line each: `--max-model-len: 4096 -> 2048`."""
    lines = []
    for label, before, after in (
        ("", _options(now["argv"]), _options(wanted["argv"])),
        ("environment ", now["environment"], wanted["environment"]),
        ("", {"model files": now["model"]}, {"model files": wanted["model"]}),
    ):
        for key in sorted({*before, *after}):
            if before.get(key) != after.get(key):
                lines.append(f"{label}{key}: {before.get(key, '(not set)')} -> {after.get(key, '(not set)')}")
    return lines


def _options(words: List[str]) -> Dict[str, str]:
    """Command-line words as option -> value; words without an option are numbered."""
    found: Dict[str, str] = {}
    name = ""
    for number, word in enumerate(words):
        if word.startswith("--"):
            name = word
            found[name] = ""
        elif name:
            found[name] = f"{found[name]} {word}".strip()
        else:
            found[("program", "command", "model")[min(number, 2)]] = word
    return {k: v or "on" for k, v in found.items()}
