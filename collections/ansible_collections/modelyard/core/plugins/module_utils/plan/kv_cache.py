"""The memory of a KV cache: what a request needs, how many fit, how long one may be. Pure arithmetic, as the engine does it.

The cache is handed out in blocks of `block_size` tokens. Layers of one kind share a table of blocks; with several kinds the
engine makes groups of equally many layers, and every group takes blocks of its own from one pool. All figures are those of one
rank: with tensor parallelism each rank has the same number of blocks.

Sources: vLLM 0.8.5 to 0.33, v1/core/kv_cache_utils.py (groups, how many blocks, the check at the start, the line in the log) and
v1/kv_cache_interface.py (blocks of a request). One block of the pool is never given to a request.
"""

from __future__ import annotations

import re
from typing import Any, Mapping, NamedTuple, Optional

from ansible_collections.modelyard.core.plugins.module_utils.plan.attention import CHUNKED, LATENT, SLIDING, STATE, Kind, Layout
from ansible_collections.modelyard.core.plugins.module_utils.plan.numbers import number
from ansible_collections.modelyard.core.plugins.module_utils.plan.vllm_table import order

BLOCK = {"cpu": 128}  # tokens of a block where the service does not say it: on CPUs from 0.30; cards 16
USUAL_BLOCK = 16
#: max_num_batched_tokens of a server that does not say it, on cards with less than 70 GiB. More only with larger cards.
BATCHED = 2048
#: The kernel for latent attention on CPUs without AMX has no other (vllm/platforms/cpu.py; seen live with 0.32).
LATENT_BLOCK_CPU = 16
#: With an asynchronous scheduler two batches are on their way at once (counted from 0.30). On CPUs it is never used.
BATCHES = 2
COUNTED_FROM = "0.30.0"
LINE = re.compile(
    r"KV cache size: (?P<tokens>[\d,]+) tokens"
    r"(?:[^\n]*(?:\n[^\n]*?)?Maximum concurrency for (?P<length>[\d,]+) tokens per request: (?P<concurrency>[\d.]+)x)?"
)
AVAILABLE = re.compile(r"Available KV cache memory: (?P<gib>-?[\d.]+) GiB")


class Cache(NamedTuple):
    """What the engine hands out. `block_size` in tokens; `in_flight`: tokens that are computed and not yet settled; `states`:
    blocks that a layer with a state keeps for a request.
    """

    layout: Layout
    block_size: int
    in_flight: int
    states: int = 1


class Logged(NamedTuple):
    """What an engine wrote into its log about its cache; None where it did not."""

    tokens: int
    length: Optional[int]
    concurrency: Optional[float]
    available_gib: Optional[float]


def cache(layout: Layout, engine: Mapping[str, Any], backend: str, release: str = "") -> Cache:
    """The cache of a service. `engine`: its options of vLLM; `release`: of vLLM, empty for the newest."""
    block = number(engine.get("block_size")) or BLOCK.get(backend, USUAL_BLOCK)
    if backend == "cpu" and any(kind.name == LATENT for kind in layout.kinds):
        block = LATENT_BLOCK_CPU
    batched = number(engine.get("max_num_batched_tokens")) or BATCHED
    counted = not order(release) or order(release) >= order(COUNTED_FROM)
    twice = counted and backend != "cpu" and engine.get("async_scheduling") is not False
    held = 2 if engine.get("enable_prefix_caching") is not False else 1  # `align`: the state before the last block as well
    return Cache(layout, _with_states(layout, max(1, block)), (BATCHES if twice else 1) * batched, held)


def _with_states(layout: Layout, block: int) -> int:
    """A block holds a state, too: it is made so long that a token's layer fills what a state needs."""
    state = max((kind.state_bytes for kind in layout.kinds), default=0)
    token = max((kind.token_bytes for kind in layout.kinds), default=0)
    return max(block, block * -(-state // (block * token))) if state and token else block


def group_layers(found: Cache) -> int:
    """Layers of a group: those of the rarest kind; of the commonest, where the kinds differ by less than half."""
    counts = [kind.layers for kind in found.layout.kinds]
    return max(counts) if max(counts) < 1.5 * min(counts) else min(counts)


def block_bytes(found: Cache) -> int:
    """Bytes of one block of the pool, over the layers of a group."""
    return group_layers(found) * found.block_size * max(kind.token_bytes for kind in found.layout.kinds)


def blocks(found: Cache, tokens: int) -> int:
    """Blocks that a request of so many tokens takes at most, over all groups."""
    size = group_layers(found)
    return sum(-(-kind.layers // size) * _blocks_of(kind, found, tokens) for kind in found.layout.kinds)


def _blocks_of(kind: Kind, found: Cache, tokens: int) -> int:
    if kind.name == SLIDING and kind.window:
        # The window need not begin at the beginning of a block.
        return -(-min(kind.window - 1 + found.in_flight, tokens) // found.block_size) + 1
    if kind.name == CHUNKED and kind.window:
        return -(-min(kind.window + found.in_flight, tokens) // found.block_size)
    if kind.name == STATE:
        return found.states
    return -(-tokens // found.block_size)


def token_bytes(found: Cache) -> int:
    """Bytes of one token in all layers that keep it; what a further token costs once the windows are full is less."""
    return sum(kind.layers * kind.token_bytes for kind in found.layout.kinds)


def request_bytes(found: Cache, tokens: int) -> int:
    """What one request of so many tokens takes at most: whole blocks, in every group."""
    return blocks(found, tokens) * block_bytes(found)


def fit(found: Cache, tokens: int, pool: int) -> int:
    """Requests of so many tokens that fit at once into a pool of so many blocks."""
    return max(0, pool - 1) // max(1, blocks(found, tokens))


def longest(found: Cache, pool: int, most: int) -> int:
    """The longest request that fits into a pool, up to `most` tokens; 0 when not even one token does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if fit(found, middle, pool):
            low = middle
        else:
            high = middle - 1
    return low


def pool_of_bytes(found: Cache, room: float) -> int:
    """Blocks of a pool in so many bytes of one rank."""
    return max(0, int(room // block_bytes(found)))


def logged(text: str) -> Optional[Logged]:
    """What the log of an engine says of its cache; the last start counts. None when it says nothing."""
    found = [*LINE.finditer(text)]
    if not found:
        return None
    said, gib = found[-1].groupdict(), [*AVAILABLE.finditer(text)]
    return Logged(
        int(said["tokens"].replace(",", "")),
        int(said["length"].replace(",", "")) if said["length"] else None,
        float(said["concurrency"]) if said["concurrency"] else None,
        float(gib[-1]["gib"]) if gib else None,
    )


def pool_of_log(found: Cache, said: Logged) -> int:
    """Blocks of the pool of a running engine.

    The number of tokens means two things: up to about 0.30 those of the blocks of one group; later the concurrency times
    max_model_len, so that windows count. The concurrency beside it shows which. For models whose layers are all of one kind the
    two are the same, but for a part of a block.
    """
    groups = sum(-(-kind.layers // group_layers(found)) for kind in found.layout.kinds)
    plain = said.tokens // found.block_size * groups
    if not said.length or said.concurrency is None:
        return plain
    one = blocks(found, said.length)
    derived = -(-said.tokens * one // said.length)
    if said.tokens % found.block_size == 0 and round(plain / one, 2) == said.concurrency:
        return plain
    return min((derived, plain), key=lambda pool: abs(pool / one - (said.concurrency or 0.0)))
