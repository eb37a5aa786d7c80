"""One call of a staging, on a host (module model_stage) or on the control node: parameters in, plain data out."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional

from ansible_collections.modelyard.core.plugins.module_utils.process.staging import fetch, place, sources, verify, web

#: So long a call works before it says how far it is.
BUDGET_S = 20.0


class Failed(Exception):
    """It did not work; the text says why.

    `status`: of the server that refused, 0 for none; `passing`: worth asking again, after `pause_s`; `holder`: the run that is at
    work instead.
    """

    def __init__(
        self, words: str, status: int = 0, passing: bool = False, pause_s: float = 0.0, holder: Optional[Dict[str, Any]] = None
    ) -> None:
        super().__init__(words)
        self.status, self.passing, self.pause_s, self.holder = status, passing, pause_s, holder or {}


def answer(phase: str, params: Mapping[str, Any]) -> Dict[str, Any]:
    """Carry out a phase. Raises Failed."""
    phases: Dict[str, Callable[[Mapping[str, Any]], Dict[str, Any]]] = {
        "offer": _offer,
        "look": _look,
        "step": _step,
        "end": _end,
        "verify": _verify,
        "record": _record,
    }
    try:
        return phases[phase](params)
    except web.Trouble as exc:
        raise Failed(str(exc), exc.status, exc.passing, exc.pause_s) from exc
    except place.Taken as exc:
        raise Failed(str(exc), holder=place.staging(Path(params["path"]))) from exc
    except fetch.Full as exc:
        raise Failed(str(exc)) from exc
    except OSError as exc:
        words = "the disk is full" if exc.errno in (errno.ENOSPC, errno.EDQUOT) else exc.strerror or str(exc)
        raise Failed(f"{exc.filename or params['path']}: {words}") from exc


def _offer(params: Mapping[str, Any]) -> Dict[str, Any]:
    return sources.offered(params["source"], params["token"])


def _look(params: Mapping[str, Any]) -> Dict[str, Any]:
    """What is there of `entries`, what is not, and whether there is room: {sizes, have, left, free, missing}."""
    root = Path(params["path"])
    step = fetch.Step(root, params["source"], "", 0.0)
    sizes = place.sizes(root)
    missing = [entry for entry in params["entries"] if not step.holds(entry) and sizes.get(entry["name"]) != entry["size"]]
    left = sum(max(0, (entry["size"] or 0) - place.partial_bytes(root, entry["name"])) for entry in missing)
    short = max(0, left + fetch.SPARE - place.free_bytes(root)) if left else 0
    return {"sizes": sizes, "left": left, "short": short, "free": place.free_bytes(root), "missing": [e["name"] for e in missing]}


def _step(params: Mapping[str, Any]) -> Dict[str, Any]:
    root = Path(params["path"])
    with place.at_work(root, params["holder"], params["dead_run"]):
        step = fetch.Step(root, params["source"], params["token"], params["budget_s"])
        if params["piece"]:
            step.append(params["piece"])
        return step.run(params["entries"], params["told"])


def _end(params: Mapping[str, Any]) -> Dict[str, Any]:
    place.ended(Path(params["path"]), params["holder"]["run"])
    return {}


def _verify(params: Mapping[str, Any]) -> Dict[str, Any]:
    """Without `names` only which ones there are to check."""
    root = Path(params["path"])
    if not params["names"]:
        return {"known": verify.known(root)}
    return verify.check(root, params["names"], params["budget_s"])


def _record(params: Mapping[str, Any]) -> Dict[str, Any]:
    return {"known": sorted(verify.record(Path(params["path"]), dict(params["told"])))}
