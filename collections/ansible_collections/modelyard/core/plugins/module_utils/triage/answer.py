"""The answer about a log, or about the logs of several processes."""

from __future__ import annotations

import heapq
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.triage import lines, notes, order, stream
from ansible_collections.modelyard.core.plugins.module_utils.triage.causes import CAUSES
from ansible_collections.modelyard.core.plugins.module_utils.triage.reading import EVIDENCE_KEPT, Reader, Sign

#: Files by which the layer of an error that no rule knows is told.
_PLACES = (
    ("/v1/core/", "scheduler"),
    ("structured_output", "scheduler"),
    ("entrypoints", "api_server"),
    ("distributed", "interconnect"),
    ("model_loader", "model_artifact"),
    ("huggingface_hub", "network_hub"),
    ("/executor/", "executor_rpc"),
    ("/worker/", "worker_runtime"),
)
_PROCESSES = {"api": "api_server", "engine": "scheduler", "worker": "worker_runtime"}


def classify(text: str) -> Dict[str, Any]:
    """What failed first according to a log.

    `layer` (None when nothing was found), `cause`, `root_cause_visible`, `gpu_needed_to_reproduce`, `evidence` (whole lines
    of the text), `next_steps`, `also` (other causes with their lines), `meaning` and `notes` (what the numbers mean).
    """
    return classify_stream(stream.blocks(text))


def classify_stream(chunks: Iterable[bytes]) -> Dict[str, Any]:
    """The same for a file of any size, read in pieces."""
    reader = Reader()
    for number, row in stream.lines(chunks):
        reader.add(number, row)
    return _answer(reader)


def classify_streams(logs: Mapping[str, Iterable[bytes]]) -> Dict[str, Any]:
    """The same for the logs of several processes: their lines are merged by time. A line without one comes after the line "
    "before it."""
    reader = Reader()
    named = [_timed(place, name, chunks) for place, (name, chunks) in enumerate(logs.items())]
    origin: Dict[int, str] = {}
    for number, (_, _, _, name, row) in enumerate(heapq.merge(*named)):
        reader.add(number, row)
        origin[number] = name
        if len(origin) > 100000:
            origin = {
                one.number: origin[one.number] for sign in reader.first.values() for one in sign.lines if one.number in origin
            }
    answer = _answer(reader)
    best, _ = order.choose(reader)
    answer["first_in"] = origin.get(best.lines[0].number, "") if best else ""
    return answer


def _timed(place: int, name: str, chunks: Iterable[bytes]) -> Iterator[Tuple[float, int, int, str, str]]:
    at = 0.0
    for number, row in stream.lines(chunks):
        read = lines.read(number, row)
        # Time never runs backwards within one log, or the merge would tear messages apart.
        at = max(at, read.at) if read.at is not None else at
        yield at, place, number, name, row


def _answer(reader: Reader) -> Dict[str, Any]:
    reader.finish()
    best, others = order.choose(reader)
    if best is None:
        return {**_of("nothing_found", None, [], False), "also": []}
    evidence = _evidence(best, reader)
    layer = _layer_of_unknown(best, reader) if best.cause == "unknown_error" else CAUSES[best.cause].layer
    said = notes.read(best.cause, evidence)
    return {
        **_of(best.cause, layer, evidence, best.visible, said),
        "also": [
            {
                "cause": sign.cause,
                "layer": CAUSES[sign.cause].layer,
                "evidence": [line.raw for line in sign.lines],
                "follows": sign.cause in order.SYMPTOM_ORDER or sign.cause in order.HARMLESS or sign.number > best.number,
            }
            for sign in others
        ],
    }


def _of(cause: str, layer: Optional[str], evidence: List[str], visible: bool, said: Iterable[str] = ()) -> Dict[str, Any]:
    about = CAUSES[cause]
    steps = list(about.steps)
    if not visible and about.unmute:
        steps.append(about.unmute)
    return {
        "layer": layer,
        "cause": cause,
        "root_cause_visible": visible,
        "gpu_needed_to_reproduce": about.gpu,
        "evidence": evidence,
        "next_steps": steps,
        "meaning": about.meaning,
        "notes": list(said),
    }


def _evidence(best: Sign, reader: Reader) -> List[str]:
    """The lines that decide, in their order, and those that add to them."""
    found = {line.number: line.raw for line in (*best.lines, *reader.support.get(best.cause, ()))}
    return [found[number] for number in sorted(found)][: EVIDENCE_KEPT * 2]


def _layer_of_unknown(sign: Sign, reader: Reader) -> str:
    words = reader.unknown_where
    for place, layer in _PLACES:
        if place in words:
            return layer
    return _PROCESSES.get(lines.process(sign.lines[0].who), "api_server")
