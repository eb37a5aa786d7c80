"""Which max_model_len do prompts need, and what does it cost? Pure: from counts, the model's cache and the room for it."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from ansible_collections.modelyard.core.plugins.module_utils.plan import attention, kv_cache, token_counts
from ansible_collections.modelyard.core.plugins.module_utils.plan.numbers import length, number, size
from ansible_collections.modelyard.core.plugins.module_utils.plan.token_counts import Counts

#: Lengths are advised in such steps: people write and compare them.
STEP = 1024


class Wish(NamedTuple):
    """The service, or a model without one. `planned`, `deployed`: max_model_len; `model`: the longest that it was made for."""

    name: str
    engine: Mapping[str, Any]
    backend: str
    tp: int
    planned: Optional[int]
    deployed: Optional[int]
    model: Optional[int]

    @property
    def today(self) -> Optional[int]:
        """The max_model_len that holds now: of the inventory, else of the model, as the engine takes it."""
        return self.planned or self.model


class Room(NamedTuple):
    """Memory for the KV cache on one rank. `blocks`: None where it is not known. `words`: where the figure comes from."""

    blocks: Optional[int]
    words: str


def wish(name: str, engine: Mapping[str, Any], backend: str, tp: int, config: Mapping[str, Any], deployed: Any) -> Wish:
    """`config`: of the model; `deployed`: max_model_len of what runs."""
    own = attention.text_part(config)
    longest = attention.whole(own, "max_position_embeddings", "max_sequence_length", "seq_length", "n_positions")
    return Wish(name, engine, backend, tp, length(engine.get("max_model_len")), length(deployed), longest)


def room(found: kv_cache.Cache, wanted: Wish, logged: Optional[Mapping[str, Any]], free: Optional[float]) -> Room:
    """What is known best: the engine's own report, else what the service sets, else an estimate.

    :param logged: fields of kv_cache.Logged, from the log of what runs
    :param free: bytes that a rank is estimated to have, or takes where nothing is set on CPUs
    """
    if not found.layout.kinds:
        return Room(None, "")
    if logged:
        said = kv_cache.Logged(**logged)
        return Room(kv_cache.pool_of_log(found, said), f"the engine's log: KV cache size {said.tokens} tokens")
    blocks, given = number(wanted.engine.get("num_gpu_blocks_override")), number(wanted.engine.get("kv_cache_memory_bytes"))
    if blocks:
        return Room(blocks, "num_gpu_blocks_override")
    if given:
        return Room(kv_cache.pool_of_bytes(found, given), "kv_cache_memory_bytes")
    if free is None and not wanted.backend:
        return Room(None, "not known: without a service nobody says on which cards it is to run")
    if free is None:
        return Room(None, "not known before a start: no card of the service tells its memory, or the model has no weights yet")
    source = "what an engine on CPUs takes where nothing is set" if wanted.backend == "cpu" else "estimated before a start"
    return Room(kv_cache.pool_of_bytes(found, max(0.0, free)), source)


def step(found: kv_cache.Cache) -> int:
    """What an advised length is a multiple of: 1024, and whole blocks."""
    return -(-STEP // found.block_size) * found.block_size


def judge(counts: Counts, wanted: Wish, found: kv_cache.Cache, space: Room) -> Dict[str, Any]:
    """The whole result as plain data; see docs/context-fit.md."""
    tokens = token_counts.quantiles(counts.lengths, counts.longest_prompt)
    needs = token_counts.quantiles(counts.needs, counts.longest_need)
    advised = _rounded(needs["max"], found, wanted.model)
    rows = [_row(tokens_, counts, found, space) for tokens_ in _lengths(needs, advised, wanted, found, space)]
    slots = number(wanted.engine.get("max_num_seqs"))
    return {
        "subject": wanted.name,
        "lines": counts.lines,
        "prompts": counts.prompts,
        "answers_stated": counts.stated,
        "reserve": counts.reserve,
        "with_pictures": counts.pictures,
        "skipped": counts.skipped,
        "damaged": {
            "lines": counts.damaged,
            "reasons": counts.reasons,
            "first": [{"line": line, "why": why} for line, why in counts.damaged_lines],
        },
        "tokens": tokens,
        "with_answer": needs,
        "longest": [{"line": line, "tokens": need} for need, line in counts.longest],
        "max_model_len": {"planned": wanted.planned, "deployed": wanted.deployed, "model": wanted.model, "today": wanted.today},
        "refused": counts.refused,
        "short": counts.short,
        "needed": needs["max"],
        "advised": advised,
        "max_num_seqs": slots,
        "memory": {
            "ranks": wanted.tp,
            "kinds": [kind._asdict() for kind in found.layout.kinds],
            "gaps": list(found.layout.gaps),
            "block_tokens": found.block_size,
            "token_bytes": kv_cache.token_bytes(found) if found.layout.kinds else None,
            "room_bytes": None if space.blocks is None else space.blocks * kv_cache.block_bytes(found),
            "room_from": space.words,
            "lengths": rows,
        },
        "advice": _advice(counts, needs, advised, wanted, found, space, slots),
    }


def _rounded(need: int, found: kv_cache.Cache, most: Optional[int]) -> int:
    """The next sensible length, at most what the model can."""
    size = step(found)
    wanted = max(size, -(-need // size) * size)
    return min(wanted, most) if most else wanted


def _lengths(needs: Mapping[str, int], advised: int, wanted: Wish, found: kv_cache.Cache, space: Room) -> List[int]:
    """The lengths that are compared: today's, what 99 per cent need, what all need, and the longest that the memory holds."""
    lengths = {advised, _rounded(needs["p99"], found, wanted.model)}
    lengths |= {one for one in (wanted.today,) if one}
    if space.blocks is not None:
        longest = kv_cache.longest(found, space.blocks, wanted.model or 4 * max(lengths))
        lengths |= {longest // step(found) * step(found) or longest} - {0}
    return sorted(lengths)


def _row(tokens: int, counts: Counts, found: kv_cache.Cache, space: Room) -> Dict[str, Any]:
    known = bool(found.layout.kinds)
    refused = token_counts.longer(counts.lengths, tokens - 1)
    return {
        "max_model_len": tokens,
        "refused": refused,
        "short": max(0, token_counts.longer(counts.needs, tokens) - refused),
        "request_bytes": kv_cache.request_bytes(found, tokens) if known else None,
        "fit": kv_cache.fit(found, tokens, space.blocks) if space.blocks is not None else None,
    }


def _advice(
    counts: Counts,
    needs: Mapping[str, int],
    advised: int,
    wanted: Wish,
    found: kv_cache.Cache,
    space: Room,
    slots: Optional[int],
) -> List[str]:
    """What to do, in words, the most important first."""
    if not counts.prompts:
        return ["no prompt was counted: nothing can be said about max_model_len"]
    lines, today = [], wanted.today
    if wanted.model and needs["max"] > wanted.model:
        count = token_counts.longer(counts.needs, wanted.model)
        lines.append(
            f"{count} of {counts.prompts} need more than the model was made for ({wanted.model} tokens, config.json): "
            "shorten these prompts, or take another model"
        )
    if today and min(needs["max"], wanted.model or needs["max"]) <= today:
        lines.append(f"max_model_len {today} is enough: the longest prompt with its answer takes {needs['max']} tokens")
        advised = today
    else:
        lines.append(
            f"set engine.max_model_len: {advised} (the longest prompt with its answer takes {needs['max']} tokens); "
            "what runs is restarted for it: playbooks/deploy.yml -e modelyard_restart=true"
        )
        most = _rounded(needs["p99"], found, wanted.model)
        if most <= advised // 2:
            lines.append(f"without the longest 1 % of the prompts {most} is enough")
    if wanted.deployed and wanted.planned and wanted.deployed != wanted.planned:
        lines.append(f"what runs has max_model_len {wanted.deployed}, the inventory wants {wanted.planned}")
    return lines + _costs(advised, wanted, found, space, slots)


def _costs(advised: int, wanted: Wish, found: kv_cache.Cache, space: Room, slots: Optional[int]) -> List[str]:
    """What the advised length costs."""
    if not found.layout.kinds:
        return [f"what it costs is not known: {found.layout.gaps[0]}"]
    need = kv_cache.request_bytes(found, advised)
    each = f" on each of {wanted.tp} cards" if wanted.tp > 1 and wanted.backend != "cpu" else ""
    each = f" on each of {wanted.tp} ranks" if wanted.tp > 1 and wanted.backend == "cpu" else each
    costs = f"{advised} needs {size(need)} a request{each}"
    if space.blocks is None:
        return [f"{costs}; how many fit is {space.words}"]
    fit = kv_cache.fit(found, advised, space.blocks)
    lines = [f"{costs}; {fit} of that length fit at once into {size(space.blocks * kv_cache.block_bytes(found))} ({space.words})"]
    if not fit:
        longest = kv_cache.longest(found, space.blocks, advised)
        lines.append(
            f"the engine would not start with it: the longest that fits is {longest}. Give it more memory "
            "(gpu_memory_utilization, kv_cache_memory_bytes), more ranks, or kv_cache_dtype fp8"
        )
    elif slots and fit < slots:
        lines.append(
            f"max_num_seqs is {slots}: when more than {fit} requests are that long at once, the others wait or are computed again"
        )
    return lines
