"""One knob to turn, with the figures that speak for it. Pure functions.

RULES is read from the top; the first that holds gives the advice, because each one takes the ground from those below it: figures
of a run with errors, or of a client that could not keep up, say nothing about slots or memory.
"""

from __future__ import annotations

from statistics import median
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.judge.load import verdict
from ansible_collections.modelyard.core.plugins.module_utils.judge.load.figures import error_rate, in_percent

#: A core of which the generator used more than this was its limit.
CLIENT_FULL = 0.9
#: A KV cache that was fuller than this had no room for one more request.
KV_FULL, KV_LOW = 0.9, 0.7
#: Cards that were busy for less than this (percent, median) left room.
BUSY = 85
#: The fullest instance got more than this many times what the emptiest got; judged from so many requests each on.
UNEVEN, UNEVEN_FROM = 1.5, 8
#: Figures of a level that took less time scatter, and engines and cards were looked at a few times only; so long it should be.
SHORT_S, LONG_S = 5.0, 20.0


class Facts(NamedTuple):
    """What the rules look at. `best`: the level that the service sustains; `most`: the one with the highest load."""

    levels: Sequence[Mapping[str, Any]]
    best: Mapping[str, Any]
    most: Mapping[str, Any]
    slots: Optional[int]
    instances: int
    tops_out: bool
    gateway_limit: int  # requests that the gateway gives one instance at a time; 0 for no limit

    def server(self, key: str) -> float:
        """The highest figure of the engines at the level with the highest load; 0 where it is not known."""
        return float(self.most["server"].get(key) or 0)

    @property
    def utilization(self) -> Optional[float]:
        """Median over the cards of how busy they were at the sustained level, in percent."""
        known = [card["utilization_median"] for card in self.best["cards"] if card["utilization_median"] is not None]
        return median(known) if known else None

    @property
    def busy(self) -> str:
        """The same in words, to be put behind a reason."""
        return "" if self.utilization is None else f", the cards were busy {self.utilization:.0f} % of the time (median)"

    @property
    def full(self) -> bool:
        """Were all slots taken at the highest load?"""
        return self.slots is not None and self.server("running_max") >= self.slots


class Rule(NamedTuple):
    """When `holds`, turn `knob`; `words` says why from the figures. `because`: why the rule is right, for who reads the table."""

    knob: str
    holds: Callable[[Facts], bool]
    words: Callable[[Facts], str]
    because: str


def _errors(facts: Facts) -> Mapping[str, Any]:
    return next((level for level in facts.levels if level["failed"]), {})


def _failed(level: Mapping[str, Any]) -> str:
    told = ", ".join(f"{count} x {error}" for error, count in list(level["errors"].items())[:3])
    return f"at {level['kind']} {level['value']:g} {level['failed']} of {level['requests']} requests failed ({told})"


def _shares(facts: Facts) -> List[int]:
    return list(facts.best["by_backend"].values()) if len(facts.best["by_backend"]) > 1 else []


def _by_instance(level: Mapping[str, Any]) -> str:
    return ", ".join(f"{index}: {count}" for index, count in level["by_backend"].items())


def _uneven(facts: Facts) -> bool:
    shares = _shares(facts)
    return bool(shares) and max(shares) >= UNEVEN_FROM and max(shares) > UNEVEN * max(1, min(shares))


def _limited(facts: Facts) -> bool:
    at_most = facts.gateway_limit * facts.instances
    tight = bool(at_most) and facts.slots is not None and at_most < facts.slots
    return tight and facts.server("running_max") >= at_most and not facts.server("waiting_max")


def _no_room(facts: Facts) -> bool:
    return facts.server("preemptions") > 0 or facts.server("kv_usage_max") >= KV_FULL


def _room_on_cards(facts: Facts) -> bool:
    idle = facts.utilization is not None and facts.utilization < BUSY
    return facts.full and idle and facts.server("kv_usage_max") < KV_LOW


def _queue_with_free_cache(facts: Facts) -> bool:
    low = facts.server("kv_usage_max") < KV_LOW
    return facts.full and facts.utilization is None and facts.server("waiting_max") > 0 and low


def _shortest(facts: Facts) -> Mapping[str, Any]:
    return min((facts.best, facts.most), key=lambda level: float(level["seconds"]))


def _enough(level: Mapping[str, Any]) -> int:
    """So many requests make it long enough, by its own rate."""
    return int(-(-LONG_S * level["requests_per_s"] // 10) * 10)


def _never_full(facts: Facts) -> bool:
    clients = facts.most["value"] if facts.most["kind"] == "concurrency" else 0
    known = facts.slots is not None and facts.most["server"].get("running_max") is not None
    # What waits in the engines has passed whatever stands before them.
    arrived = facts.server("running_max") + facts.server("waiting_max")
    return known and clients >= (facts.slots or 0) and arrived < 0.9 * (facts.slots or 0)


RULES: Sequence[Rule] = (
    Rule(
        "errors",
        lambda f: any(error_rate(level) for level in f.levels),
        lambda f: f"solve the errors first: {_failed(_errors(f))}",
        "A refused request costs nothing: throughput beside errors is not what users get.",
    ),
    Rule(
        "client",
        lambda f: (f.best.get("client_cpu") or 0) >= CLIENT_FULL,
        lambda f: (
            f"these are the limits of the load generator, not of the service: it used {f.best['client_cpu']:.2f} of one core. "
            "Ask for longer answers, or run it several times at once from other machines"
        ),
        "The generator is one process; without processor left it measures itself.",
    ),
    Rule(
        "load_test_requests",
        lambda f: float(_shortest(f)["seconds"]) < SHORT_S,
        lambda f: (
            f"make the levels longer before anything is concluded: {_shortest(f)['kind']} {_shortest(f)['value']:g} took "
            f"{_shortest(f)['seconds']:.1f} s, and figures of less than {SHORT_S:.0f} s scatter: "
            f"-e load_test_requests={_enough(_shortest(f))}"
        ),
        "A hiccup of a second changes a level of two seconds, and nothing in its figures shows it.",
    ),
    Rule(
        "gateway",
        _uneven,
        lambda f: (
            f"the load is uneven: requests by instance are {_by_instance(f.best)}. See which instance "
            "is slow or was out (status of the gateway) before anything else is changed"
        ),
        "With the fewest-requests rule a slow or sick instance gets less; its slots are missing in every figure.",
    ),
    Rule(
        "gateway.per_backend_limit",
        _limited,
        lambda f: (
            f"raise gateway.per_backend_limit: it lets {f.gateway_limit * f.instances} requests through, {f.slots} slots are "
            "there, and nothing waited in the engines"
        ),
        "Requests that wait at the gateway cannot be computed, whatever the engines have free.",
    ),
    Rule(
        "kv_cache",
        _no_room,
        lambda f: (
            f"give the KV cache more room: it was {in_percent(f.server('kv_usage_max'))} full and "
            f"{f.server('preemptions'):.0f} requests were computed again for want of it{f.busy}. Raise "
            "gpu_memory_utilization (or kv_cache_memory_bytes), or lower max_model_len, or max_num_seqs"
        ),
        "A preempted request is computed from its beginning; more slots would only make more of them.",
    ),
    Rule(
        "max_num_seqs",
        _room_on_cards,
        lambda f: (
            f"raise max_num_seqs: all {f.slots} slots were taken, up to {f.server('waiting_max'):.0f} requests waited{f.busy}, "
            f"and {in_percent(f.server('kv_usage_max'))} of the KV cache was used at most"
        ),
        "Slots are the limit, and neither the cards nor the cache are: a larger batch makes better use of both.",
    ),
    Rule(
        "max_num_seqs",
        _queue_with_free_cache,
        lambda f: (
            f"raise max_num_seqs: all {f.slots} slots were taken and up to {f.server('waiting_max'):.0f} requests waited, "
            f"while {in_percent(f.server('kv_usage_max'))} of the KV cache was used at most. How busy the cards were is not "
            "known: look again after the change"
        ),
        "As above, where no tool tells how busy the cards are.",
    ),
    Rule(
        "replicas",
        lambda f: f.full and f.tops_out,
        lambda f: (
            f"more cards, or a smaller model: all {f.slots} slots were taken{f.busy}, so more slots would mainly make each "
            "answer slower"
        ),
        "Busy cards with full slots are what the hardware gives.",
    ),
    Rule(
        "entry",
        _never_full,
        lambda f: (
            f"find out what holds requests back before the engines: {f.most['value']:g} clients asked, {f.slots} slots are "
            f"there, and at most {f.server('running_max'):.0f} were taken. Very short answers do this too; ask for longer ones "
            "(load_test_output_tokens)"
        ),
        "Clients that are more than the slots fill them, unless something between them does not let them.",
    ),
    Rule(
        "load",
        lambda f: not f.tops_out and len(f.levels) > 1,
        lambda f: (
            f"throughput still rises at {f.most['kind']} {f.most['value']:g}: test with more load before a limit is looked for"
        ),
        "A sweep that ends before the top does not show what limits.",
    ),
)


def advise(record: Mapping[str, Any], gateway_limit: int = 0) -> List[Dict[str, str]]:
    """[{knob, words}] with one entry, or none where no figure speaks for a change. `record`: with levels, slots and instances."""
    levels = record["levels"]
    if not levels:
        return []
    good = verdict.sound(levels, record["limits"])
    best = verdict.sustained(good) or levels[0]
    facts = Facts(
        levels, best, levels[-1], record["slots"], record["instances"], verdict.tops_out(levels) is not None, gateway_limit
    )
    rule = next((rule for rule in RULES if rule.holds(facts)), None)
    return [{"knob": rule.knob, "words": rule.words(facts)}] if rule else []
