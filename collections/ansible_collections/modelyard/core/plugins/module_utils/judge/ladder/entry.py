"""The step `gateway`: a stream through the gateway against the same one asked directly of the instance that answered. Pure.

A gateway that holds tokens back shows in two ways: the first token comes late, and most gaps between tokens become small, because
many arrive at once, while the pauses between such clumps become long. On a machine without a free processor small gaps alone mean
nothing: whoever is late reads two tokens at once.
"""

from __future__ import annotations

import statistics
from typing import Any, Dict, List, Mapping

from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder.answer import unanswered
from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder.step import (
    SEED,
    Body,
    Instance,
    Service,
    Step,
    Verdict,
    busy,
    chat,
    failed,
    generates,
    passed,
    skipped,
)

#: Pairs of streams for each instance, and tokens of each.
PAIRS, TOKENS = 3, 32
#: The first token through the gateway may take so much longer: a factor, and seconds on top for a busy small machine.
TTFT_FACTOR, TTFT_SLACK_S = 1.5, 0.1
#: So many times as long, and milliseconds on top, a gap between tokens may be; so much shorter is clumping.
GAP_FACTOR, GAP_SLACK_MS, CLUMPED = 1.5, 5.0, 0.5
#: Of an engine that is faster than this clumps cannot be told from tokens; and so much longer must the pauses between them be.
SHORTEST_GAP_MS, PAUSE_FACTOR, PAUSE_SLACK_MS = 2.0, 1.5, 15.0
#: With so many programs for each processor, times say something of the machine and nothing of the gateway.
CROWDED = 4.0
#: Causes after which the pairs are asked for once more: a single look at a busy machine proves nothing.
OF_TIMES = ("late", "clumped", "slow")
#: Words in which it cannot be judged.
NOT_SENT = "the gateway sent none of {asked} requests to this instance: it is taken out there, or not in yet"
#: A request that was not answered in time, and that the instance has not got either (reply_rules.py).
NOT_PASSED_ON = "silent"
HELD = "the gateway took the request, and the instance has none in work"
LOOK_AT_GATEWAY = "look at the gateway, its log and its status; the instances answer, so nothing of them needs a restart"
BUFFERING = "look for a proxy that buffers between clients and instances; for nginx and HAProxy compare docs/gateway-kinds.md"


def body(service: Service) -> Body:
    """The stream that is asked for on both ways."""
    return chat(service, "Tell a long story.", TOKENS, stream=True, seed=SEED, ignore_eos=True)


def _medians(streams: List[Mapping[str, Any]]) -> Dict[str, float]:
    gaps = [gap for one in streams for gap in one["gaps_ms"]]
    first = [one["ttft_s"] for one in streams]
    return {
        "ttft_s": statistics.median(first) if first else 0.0,
        "gap_ms": statistics.median(gaps) if gaps else 0.0,
        "pause_ms": _pause(gaps),
    }


def _pause(gaps: List[float]) -> float:
    """Half of the time passes in gaps at least so long: of tokens that come evenly their gap, of clumps what is between them."""
    passed_ms = 0.0
    for gap in sorted(gaps, reverse=True):
        passed_ms += gap
        if passed_ms >= sum(gaps) / 2:
            return gap
    return 0.0


def gateway(service: Service, _: Instance, seen: Dict[str, Any]) -> Verdict:
    """`seen`: {why, refused, asked, pairs: [{through, direct}], others, crowd}, streams as survey/stream.py has them; `crowd`:
    programs that ran or waited for a processor, for each processor."""
    if seen["why"]:
        return skipped(seen["why"])
    for way, title in (("through", "through the gateway: "), ("direct", "asked directly: ")):
        for one in [*seen["refused"], *(pair[way] for pair in seen["pairs"])]:
            if one["way"] != way:
                continue
            if one["status"] == 401 and service["gateway"].get("keys_file") and way == "through":
                why = "the gateway wants a key of gateway.keys_file, which holds sums only; add the service's own key to test it"
                return skipped(why)
            none = unanswered(one, seen, title)
            if none and none.cause == NOT_PASSED_ON and way == "through":
                # Seen from an instance it got lost; whoever stands in front of it has it.
                return failed(f"{title}no answer within {one['seconds']:.0f} s: {HELD}", "held", LOOK_AT_GATEWAY)
            if none:
                return none
            if not one["whole"]:
                do = "look at the gateway's log and the end of the instance's log at that time"
                return failed(f"{title}the stream ended without [DONE]", "truncated", do)
    if not seen["pairs"]:
        return skipped(NOT_SENT.format(asked=seen["asked"]))
    return _times(_medians([p["through"] for p in seen["pairs"]]), _medians([p["direct"] for p in seen["pairs"]]), seen)


def _times(through: Mapping[str, float], direct: Mapping[str, float], seen: Mapping[str, Any]) -> Verdict:
    shown = (
        f"first token after {through['ttft_s']:.3f} s through the gateway, {direct['ttft_s']:.3f} s direct; "
        f"then every {through['gap_ms']:.1f} ms, {direct['gap_ms']:.1f} ms direct ({len(seen['pairs'])} pairs)"
    )
    cause, words = "", ""
    gap = direct["gap_ms"]
    late = through["ttft_s"] > direct["ttft_s"] * TTFT_FACTOR + TTFT_SLACK_S
    paused = through["pause_ms"] > direct["pause_ms"] * PAUSE_FACTOR + PAUSE_SLACK_MS
    # What holds tokens back makes the first one late as well, so clumps say more.
    if gap >= SHORTEST_GAP_MS and through["gap_ms"] < gap * CLUMPED and (late or paused):
        cause, words = "clumped", f"tokens arrive in clumps through the gateway, with pauses of {through['pause_ms']:.0f} ms"
    elif late:
        cause, words = "late", "the first token comes late through the gateway"
    elif through["gap_ms"] > gap * GAP_FACTOR + GAP_SLACK_MS:
        cause, words = "slow", "tokens come slowly through the gateway"
    if not cause:
        return passed(shown)
    if seen["others"]:
        what = f"{words}, but {seen['others']:.0f} other request(s) were in work: {shown}"
        return busy(what, "loaded", "ask again when less is asked of it")
    if seen["crowd"] > CROWDED:
        what = f"{words}, but {seen['crowd']:.1f} programs wanted each processor of the host: {shown}"
        return busy(what, "loaded", "ask again when less runs on the host; nothing of the service needs a restart")
    return failed(f"{words}: {shown}", cause, BUFFERING)


STEP = Step(
    "gateway",
    lambda s, i: {"kind": "entry"},
    gateway,
    wanted=generates,
)
