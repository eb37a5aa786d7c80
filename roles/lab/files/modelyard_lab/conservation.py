"""What must hold after every step, whatever was asked: no block is lost, none is given away twice, none belongs to nobody."""

from __future__ import annotations

from collections import Counter
from typing import Any

DEFERRED = "(freed when the step in work has ended)"


def broken(scheduler: Any) -> str:
    """The first rule that does not hold, in words; empty when all do."""
    pool = scheduler.kv_cache_manager.block_pool
    free = [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]
    number, times = Counter(free).most_common(1)[0] if free else (0, 0)
    if times > 1:
        return f"block {number} stands {times} times in the list of free blocks"
    if len(free) != pool.get_num_free_blocks():
        return f"{pool.get_num_free_blocks()} free blocks are counted, {len(free)} stand in the list"
    owners, among = _owners(scheduler), set(free)
    strangers = sorted({name for names in owners.values() for name in names} - set(scheduler.requests) - {DEFERRED})
    if strangers:
        return f"request {strangers[0]} holds blocks and is no request of the engine any more"
    for block in pool.blocks:
        problem = _of_block(block, block.block_id in among, owners.get(block.block_id, []))
        if problem:
            return problem
    return ""


def _owners(scheduler: Any) -> dict[int, list[str]]:
    """Which requests hold each block, once for each time that they hold it."""
    held: dict[int, list[str]] = {}
    for manager in scheduler.kv_cache_manager.coordinator.single_type_managers:
        for name, blocks in manager.req_to_blocks.items():
            for block in blocks:
                if not block.is_null:
                    held.setdefault(block.block_id, []).append(name)
    for _, blocks in getattr(scheduler, "deferred_frees", ()):
        for block in blocks:
            held.setdefault(block.block_id, []).append(DEFERRED)
    return held


def _of_block(block: Any, free: bool, owners: list[str]) -> str:
    if block.is_null:
        return ""
    if free and block.ref_cnt:
        return f"block {block.block_id} is free and has {block.ref_cnt} references"
    if not free and not block.ref_cnt:
        return f"block {block.block_id} is lost: nobody refers to it, and it is not free"
    if block.ref_cnt != len(owners):
        whose = ", ".join(sorted(set(owners))) or "nobody"
        return f"block {block.block_id} has {block.ref_cnt} references and is held {len(owners)} times, by {whose}"
    return ""
