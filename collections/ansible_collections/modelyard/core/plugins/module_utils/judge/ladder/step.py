"""What a step of the acceptance is, and what can come out of it. Pure; standard library only: it is walked on the host."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple

Service = Mapping[str, Any]
Instance = Mapping[str, Any]
Body = Dict[str, Any]
PASS, FAIL, BUSY, SKIPPED = "pass", "fail", "busy", "skipped"
#: The seed of every request of which two answers are compared.
SEED = 7


class Verdict(NamedTuple):
    """What came out of a step.

    `complaint` is empty for a pass and for a step that was left out; `seen` says what was seen, or why it was left out.
    `cause` is an id of reply_cause.py or of the step itself, `next` what the admin does next, `restart` whether a restart would
    be of use. `word`: BUSY is no failure and no proof.
    """

    complaint: str
    seen: str
    cause: str = ""
    next: str = ""
    restart: bool = False
    word: str = PASS


def passed(seen: str) -> Verdict:
    """The step holds."""
    return Verdict("", seen)


def failed(complaint: str, cause: str, next_step: str, restart: bool = False) -> Verdict:
    """It does not."""
    return Verdict(complaint, "", cause, next_step, restart, FAIL)


def busy(complaint: str, cause: str, next_step: str) -> Verdict:
    """It could not be judged, because the service is at work for others."""
    return Verdict(complaint, "", cause, next_step, False, BUSY)


def skipped(why: str) -> Verdict:
    """It does not apply here; `why` in a few words."""
    return Verdict("", why, word=SKIPPED)


class Step(NamedTuple):
    """One rung. `ask` makes what survey/probe.py shall do, `judge` reads what that has seen.

    `quick`: part of the quick ladder. `wanted`: belongs to this service's ladder. `loads`: asks for tokens, so it waits for room.
    """

    id: str
    ask: Callable[[Service, Instance], Dict[str, Any]]
    judge: Callable[[Service, Instance, Dict[str, Any]], Verdict]
    quick: bool = False
    wanted: Callable[[Service], bool] = lambda service: True
    loads: bool = True


def get(path: str) -> Callable[[Service, Instance], Dict[str, Any]]:
    """An ask: one GET."""
    return lambda service, instance: {"kind": "http", "method": "GET", "path": path, "bodies": [None]}


def post(path: str, make: Callable[[Service], List[Body]]) -> Callable[[Service, Instance], Dict[str, Any]]:
    """An ask: these bodies one after the other, until one is not answered with 200."""
    return lambda service, instance: {"kind": "http", "method": "POST", "path": path, "bodies": make(service)}


def chat(service: Service, content: Any, max_tokens: int, **more: Any) -> Body:
    """A chat request; temperature 0, so that a repetition says the same."""
    return {
        "model": service["model"]["id"],
        "messages": [{"role": "user", "content": content}],
        "max_tokens": max_tokens,
        "temperature": 0,
        **more,
    }


CHAT = "/v1/chat/completions"
GENERATE, EMBED, OTHER = "generate", "embed", "other"
#: Values of engine.task up to 0.12, and of engine.convert, by what can be asked of such an engine.
_TASKS = {"generate": GENERATE, "embed": EMBED, "embedding": EMBED, "classify": OTHER, "score": OTHER, "reward": OTHER}
_TASKS.update({"transcription": OTHER, "draft": OTHER})


def kind(service: Service) -> str:
    """What can be asked of it: chats, vectors, or something that no step knows."""
    engine = service["engine"]
    named = _TASKS.get(str(engine.get("task") or "")) or _TASKS.get(str(engine.get("convert") or ""))
    if named:
        return named
    return EMBED if engine.get("runner") == "pooling" else GENERATE


def generates(service: Service) -> bool:
    """Do the steps apply that ask for text?"""
    return kind(service) == GENERATE


def also(name: str) -> Callable[[Service], bool]:
    """Has the inventory declared it under acceptance.also?"""
    return lambda service: generates(service) and name in service["acceptance"].get("also", ())
