"""From intent to the command line and environment of one instance, for the pinned vLLM release. Pure functions."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan import shortened
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.plan.intent import nearest
from ansible_collections.modelyard.core.plugins.module_utils.process.identity import INSTANCE_MARKER, MARKER

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
    """Keys of `engine` that the release does not have, or has without effect, each with what to write instead.

    Nothing is said about a release that is not known: that is a finding of its own.
    """
    if not table["known"]:
        return []
    found = []
    for key, value in engine.items():
        id, what, do = _judged(key, value, table)
        if id:
            found.append(finding(id, f"{where}.engine.{key}", what, do))
    return found


def _judged(key: str, value: Any, table: Mapping[str, Any]) -> Tuple[str, str, str]:
    """(id of the finding, what was found, what to do) of one key; an empty id when nothing is wrong with it."""
    release = f"vLLM {table['release']}"
    options = table["options"]
    known = {name for names in options.values() for name in names}
    if key in table["owned"]:
        return "PL-ENGINE-KEY-OWNED", f"{key} is not set under engine", table["owned"][key]
    if key in table["removed"]:
        since = table["removed"][key]["since"]
        what = f"{release} has no option {key} any more" + (f": it is gone since {since}" if since else "")
        return "PL-ENGINE-KEY-REMOVED", what, table["removed"][key]["do"]
    if key in table["later"]:
        coming = table["later"][key]
        newer = f"use vLLM {coming['since']} or newer"
        what = f"{release} has no option {key} yet: it comes with {coming['since']}"
        return "PL-ENGINE-KEY-LATER", what, f"{coming['do']}, or {newer}" if coming["do"] else f"leave it out, or {newer}"
    if key in table["request_fields"] and key not in known:
        field = table["request_fields"][key]
        what = f"{key} is a field of a request, not an option of the engine"
        if field["ignored"]:
            what += f", and {release} ignores it: the answer is HTTP 200 with text that nothing constrains"
        return "PL-ENGINE-KEY-REQUEST", what, f"remove it here; {field['do']}"
    if key not in known:
        what = f"{release} has no option {key}{nearest(key, known - set(table['owned']))}"
        return "PL-ENGINE-KEY-UNKNOWN", what, "write engine keys as vLLM names its options, with underscores"
    if value is None:
        return "", "", ""
    if key in table["idle"]:
        what = f"{release} accepts {key} and does nothing with it, since {table['idle'][key]['since']}; it is not passed on"
        return "PL-ENGINE-KEY-IDLE", what, table["idle"][key]["do"]
    if key in options["switch"] + options["flag"] and not isinstance(value, bool):
        return "PL-ENGINE-VALUE", f"{value!r} is neither true nor false", "write true or false"
    limited = table["values"].get(key)
    if limited and str(value).strip().lower() in limited["words"]:
        what = f"{release} does not take {value} for {key}: that comes with {limited['since']}"
        return "PL-ENGINE-VALUE", what, limited["do"]
    return "", "", ""


def option(key: str, value: Any, table: Mapping[str, Any]) -> List[str]:
    """One engine key as command-line words. `None` leaves the option out, so a host can undo what a group set."""
    flag = "--" + key.replace("_", "-")
    options = table["options"]
    if value is None or key in table["idle"]:
        return []
    if key in options["switch"]:
        return [flag if value else "--no-" + flag[2:]]
    if key in options["flag"]:
        return [flag] if value else []
    values = value if isinstance(value, list) else [value]
    if key in options["list"]:
        return [flag, *[_word(v) for v in values]] if values else []
    if key in options["repeat"]:
        return [word for v in values for word in _pair(flag, v)]
    return _pair(flag, value)


def _pair(flag: str, value: Any) -> List[str]:
    """`--x A`, or `--x=-A` where A would be taken for an option itself."""
    word = _word(value)
    return [f"{flag}={word}"] if word.startswith("-") else [flag, word]


def _word(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return json.dumps(value, sort_keys=True)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def engine_options(service: Mapping[str, Any], table: Mapping[str, Any]) -> Dict[str, Any]:
    """What the engine gets: what the inventory sets, and what is written out so that it means the same on every release."""
    engine = {**table["defaults"], **service["engine"]}
    if "shutdown_timeout" in table["options"]["value"]:
        engine.setdefault("shutdown_timeout", SHUTDOWN_TIMEOUT_S)
    return engine


def arguments(service: Mapping[str, Any], port: int, table: Mapping[str, Any]) -> List[str]:
    """The words after `vllm`, each option once, in a fixed order. All known releases have `vllm serve` (it came with 0.5.2)."""
    words = ["serve", service["model"]["path"], "--served-model-name", service["model"]["id"]]
    words += ["--host", service["listen"]["host"], "--port", str(port)]
    words += ["--tensor-parallel-size", str(service["topology"]["tensor_parallel_size"])]
    engine = engine_options(service, table) if table["known"] else {}
    for key in sorted(engine):
        words += option(key, engine[key], table)
    return words


def shutdown_timeout(service: Mapping[str, Any], table: Mapping[str, Any]) -> float:
    """Seconds that the engine may take to finish open requests at a stop: what it was told, and what it takes anyhow."""
    wanted = engine_options(service, table).get("shutdown_timeout")
    told = float(wanted) if isinstance(wanted, (int, float)) and "shutdown_timeout" in table["options"]["value"] else 0.0
    return max(told, float(table["shutdown_least_s"]))


def spread(cards: List[int], ranks: int) -> List[List[int]]:
    """Cards over ranks, evenly and in order; what does not divide stays unused."""
    share = len(cards) // ranks
    return [cards[i * share : (i + 1) * share] for i in range(ranks)]


def _numbers(cores: List[int]) -> str:
    return ",".join(str(c) for c in cores)


def visible(
    cards: List[List[int]], devices: Sequence[Mapping[str, Any]], backend: Mapping[str, Any], table: Mapping[str, Any]
) -> List[str]:
    """What names the cards of an instance to its engine: uuids where the release and the vendor take them, else numbers.

    A uuid means the same card after a reboot, and when another card has fallen off the bus.
    """
    uuids = [str(device["uuid"]) for device in devices]
    if backend.get("visibility_ids") and table.get("visibility_by_id") and uuids and all(uuids):
        return uuids
    return [str(card) for rank in cards for card in rank]


def environment(
    service: Mapping[str, Any],
    cards: List[List[int]],
    backend: Mapping[str, Any],
    home: str,
    instance: int = 0,
    names: Sequence[str] = (),
    toolkit: Mapping[str, str] = {},
) -> Dict[str, str]:
    """Environment of one instance; `cards` holds the cards of each of its ranks, `names` what they are called (see `visible`).

    `toolkit`: what the vendor's toolkit on the host sets (see `of_toolkit`).
    """
    cache = f"{home}/cache"
    values = {
        **toolkit,
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
        values["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(_numbers(rank) for rank in cards)
        if service["engine"].get("kv_cache_memory_bytes") is None:
            values["VLLM_CPU_KVCACHE_SPACE"] = str(backend["kv_cache_default_mib"] // 1024)
    elif cards:
        values[backend["visibility"]] = ",".join(names or (str(card) for rank in cards for card in rank))
    values.update({str(k): str(v) for k, v in service["environment"].items() if v is not None})
    values[MARKER], values[INSTANCE_MARKER] = service["name"], str(instance)
    return values


def of_toolkit(backend: str, survey: Mapping[str, Any], runtime: str) -> Dict[str, str]:
    """What env.sh of Hygon's DTK has set on this host; what it puts before PATH stands behind the runtime's own programs."""
    seen: Mapping[str, str] = (survey["stack"].get("dtk") or {}).get("environment", {}) if backend == "hygon" else {}
    path = {"PATH": f"{runtime}/bin:{seen['PATH']}:/usr/local/bin:/usr/bin:/bin"} if seen.get("PATH") else {}
    return {**{name: value for name, value in seen.items() if name != "PATH"}, **path}


def digest(words: List[str], environment: Mapping[str, str], model: str, key_hash: str) -> str:
    """One short hash over everything that a running engine was started with; `key_hash` is a slow hash of its API key."""
    text = json.dumps([words, sorted(environment.items()), model, key_hash])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def differences(now: Mapping[str, Any], wanted: Mapping[str, Any]) -> List[str]:
    """What differs between two launches ({argv, environment, model}), a line each: `--max-model-len: 4096 -> 2048`.

    The launch of a gateway has its settings as well.
    """
    lines = []
    own, settings = now.get("settings", {}), wanted.get("settings", {})
    if settings and own != settings:  # its words follow from them
        other = [key for key in sorted(settings) if own.get(key) != settings[key]]
        return [f"{key}: {own.get(key, '(not set)')} -> {settings[key]}" for key in other]
    for label, before, after in (
        ("", shortened.options(now["argv"]), shortened.options(wanted["argv"])),
        ("environment ", now["environment"], wanted["environment"]),
        ("", {"model files": now["model"]}, {"model files": wanted["model"]}),
    ):
        for key in sorted({*before, *after}):
            if before.get(key) != after.get(key):
                lines.append(f"{label}{key}: {before.get(key, '(not set)')} -> {after.get(key, '(not set)')}")
    return lines
