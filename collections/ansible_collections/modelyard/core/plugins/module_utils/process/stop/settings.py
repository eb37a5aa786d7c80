"""How long a stop may take, and what else it is told: by its caller, else by what the service's service.json says."""

from __future__ import annotations

from typing import Any, Collection, Dict, Mapping, NamedTuple, Optional

from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import phases

MEMORY_S = 120.0
DRAIN_S = 30.0


class Settings(NamedTuple):
    """`limits` of the signals; `memory_s`: how long memory may take to come back; `drain_command` is run before anything ends.

    `only_signals`: end the processes and leave the rest (cards, shared memory, the report) to whoever ordered this stop.
    `unit_more_s`: so much longer the stop of a unit may take, which goes by service.json, whatever this stop was told.
    """

    limits: phases.Limits
    memory_s: float
    unit_more_s: float
    drain_command: str
    drain_s: float
    runtimes_dir: str
    release_supervisor: bool
    only_signals: bool


def read(
    home: str, service: str, states: Collection[Optional[Mapping[str, Any]]], options: Optional[Mapping[str, Any]] = None
) -> Settings:
    """The settings of one stop. `states`: what the keepers wrote down; an engine's own time for open requests stands there."""
    given = {key: value for key, value in (options or {}).items() if value is not None}
    written = (layout.read_json(layout.service_dir(home, service) / "service.json") or {}).get("stop")
    written = written if isinstance(written, dict) else {}
    known: Dict[str, Any] = {**written, **given}
    usual = phases.Limits()
    linger_s = _number(known.get("linger_s"), usual.linger_s)
    drains = [_number(state["request"].get("shutdown_timeout_s"), 0.0) for state in states if state]
    # A server that may go on alone for longer than usual works off requests all that time, as a gateway does.
    drains += [linger_s] if linger_s > usual.linger_s else []
    return Settings(
        limits=phases.Limits(
            grace_s=_number(known.get("grace_s"), usual.grace_s),
            term_s=_number(known.get("term_s"), usual.term_s),
            kill_s=_number(known.get("kill_s"), usual.kill_s),
            # A second signal would cut the engine's own time for open requests short.
            drain_s=max(drains, default=0.0),
            linger_s=linger_s,
        ),
        memory_s=_number(known.get("memory_s"), MEMORY_S),
        unit_more_s=sum(
            max(0.0, _number(written.get(key), otherwise) - _number(known.get(key), otherwise))
            for key, otherwise in (("grace_s", usual.grace_s), ("memory_s", MEMORY_S))
        ),
        drain_command=str(known.get("drain_command") or ""),
        drain_s=_number(known.get("drain_s"), DRAIN_S),
        runtimes_dir=str(known.get("runtimes_dir") or ""),
        release_supervisor=bool(known.get("release_supervisor", True)),
        only_signals=bool(given.get("only_signals", False)),
    )


def _number(value: Any, usual: float) -> float:
    """What people wrote may be no number: then the usual one holds."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return usual
    return number if 0 <= number < 86400 else usual
