"""One run from its beginning to its end: ask, judge, write down, tell. Whatever fails on the way, there is an answer."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from modelyard import files, report
from modelyard.accept import answer, changes, config, events, junit, lock, play, store
from modelyard.tell import outbox

#: Runs that the page shows.
STRIP = 90
#: Of ansible's output, where it ended without a result.
LAST_LINES = 8
ARTIFACTS = (("json", "json"), ("junit", "xml"), ("html", "html"))
Entries = Sequence[Mapping[str, Any]]


class Request(NamedTuple):
    """What is asked for. `words`: further ones for ansible-playbook; they may hold secrets and are not kept."""

    inventories: Sequence[str]
    limit: str
    words: Sequence[str]
    trigger: str


class Outcome(NamedTuple):
    """The record; what an admin should know beside it; the ways by which news was told; news where no way is configured."""

    record: dict[str, Any]
    words: list[str]
    told: list[str]
    news: str


def accept(request: Request, settings: config.Config, place: store.Store, held: lock.Lock) -> Outcome:
    """The whole run, under the lock."""
    history = place.history()
    record, reasons, output, by_signal = ask(request, settings, place, held)
    mine = [entry for entry in history if entry["limit"] == request.limit]
    before = mine[-1] if mine else None
    record["before"] = before["answer"] if before else None
    if before and before["answer"] == record["answer"]:
        record["changed_since"] = str((place.record(before["id"]) or {}).get("changed_since") or before["id"])
    told = place.told()
    if told is None:
        last = place.record(history[-1]["id"]) if history else None
        told = changes.compare({}, last, {}, {})[1] if last else {}
    # Somebody has ended the run, and knows that.
    patience = {answer.BUSY: settings.busy_told_after_s, answer.UNREACHABLE: settings.unreachable_told_after_s}
    news, after = ([], told) if by_signal else changes.compare(told, record, reasons, patience)
    history.append({"id": record["id"], "began": record["began"], "answer": record["answer"], "limit": request.limit})
    keep(place, record, history, mine, output)
    box = outbox.Outbox(place.folder)
    message = note(record, news) if news else None
    names = box.send(settings.tell, message, settings.tell_limit_s)
    if not by_signal:
        after = changes.without_old(after, record["began"], settings.keep_days)
        place.put("told.json", files.write_json, {"schema": 1, "subjects": after}, with_reserve=True)
    kept = place.tidy(history, record["began"], settings.keep_runs, settings.keep_days)
    place.put("history.json", files.write_json, {"schema": 1, "runs": kept})
    return Outcome(record, [*place.words, *box.words], names, "" if settings.tell or message is None else message["text"])


def ask(
    request: Request, settings: config.Config, place: store.Store, held: lock.Lock
) -> tuple[dict[str, Any], dict[str, str], str, bool]:
    """(record without a past, why hosts could not be asked, ansible's output, was it ended by a signal?)."""
    id, began, seen = place.new_id(), time.time(), events.Seen()

    def event(data: Mapping[str, Any]) -> None:
        known = seen.pid
        seen.event(data)
        if seen.pid and not known:
            held.note(ansible={"pid": seen.pid, "start": lock.started(seen.pid)})

    played, broken = play.Played(254, "", "", False), ""
    stop = play.Stop(settings.limit_s, lambda: seen.pid)
    try:
        with place.work() as work:
            played = play.play(play.arguments(request.inventories, request.limit, request.words), work, event, stop)
    except (OSError, play.Failed) as exc:
        broken = f"acceptance.yml could not be run: {exc}"
    hosts = seen.hosts()
    broken = broken or played.stopped or _nothing_asked(request, played, seen, hosts)
    record = {
        "schema": 1,
        "id": id,
        "began": round(began, 3),
        "ended": round(time.time(), 3),
        "inventory": ", ".join(request.inventories),
        "limit": request.limit,
        "trigger": request.trigger,
        "answer": answer.ERROR if broken else answer.of_run(hosts),
        "before": None,
        "changed_since": id,
        "words": [*([broken] if broken else []), *seen.words, *_left_out(hosts)],
        "hosts": hosts,
        "artifacts": {name: str(place.runs / f"{id}.{kind}") for name, kind in ARTIFACTS},
    }
    return record, seen.reasons(), played.output, played.by_signal


def _nothing_asked(request: Request, played: play.Played, seen: events.Seen, hosts: Mapping[str, Mapping[str, Any]]) -> str:
    """Why the run has proven nothing; empty when something was asked."""
    if not seen.ended:
        return f"ansible-playbook ended with status {played.rc} before its end: {last_lines(played.output)}"
    if not hosts:
        limit = f" (limit {request.limit})" if request.limit else ""
        return f"no host of {', '.join(request.inventories)} was asked{limit}"
    if not any(host["services"] or host["problem"] for host in hosts.values()):
        return "the inventory names no service for any of these hosts: nothing was asked"
    return ""


def _left_out(hosts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Hosts of a run that have nothing to prove."""
    names = [name for name, host in hosts.items() if not host["services"] and not host["problem"]]
    return [] if len(names) == len(hosts) else [f"{name}: the inventory names no service for it" for name in names]


def keep(place: store.Store, record: dict[str, Any], history: Entries, mine: Entries, output: str) -> None:
    """Write the record and what belongs to it. What cannot be written or made is said and costs nothing else."""
    runs = f"runs/{record['id']}"
    place.put(f"{runs}.json", files.write_json, record)
    place.put(f"{runs}.xml", files.write_text, junit.document(record))
    accepted = [entry for entry in mine if entry["answer"] == answer.ACCEPTED]
    previous = place.record(accepted[-1]["id"]) if accepted else None
    shown = [{**entry, "html": f"{entry['id']}.html"} for entry in history[-STRIP:]]
    shown = [entry if (place.runs / entry["html"]).exists() else {**entry, "html": ""} for entry in shown]
    try:
        page = report.page(record, shown, [], previous)
    except Exception as exc:  # a fault of the page must not cost the verdict
        place.words.append(f"the page could not be made ({type(exc).__name__}: {exc}); the record is whole. Report this")
    else:
        place.put(f"{runs}.html", files.write_text, page)
    place.put(f"{runs}.log", files.write_text, store.bounded(output))
    place.link(record["id"])


def note(record: Mapping[str, Any], news: list[dict[str, Any]]) -> dict[str, Any]:
    """The message about the news of a run."""
    own = [item for item in news if item["where"] != changes.WHOLE]
    lines = [f"{item['where']}: {item['answer']} (was {item['before']}). {item['words']}" for item in own]
    whole = [report.words(record).rstrip(), "", f"Record: {record['artifacts']['json']}"]
    keys = ("id", "inventory", "limit", "answer", "before", "changed_since")
    return {
        "schema": 1,
        **{key: record[key] for key in keys},
        "at": record["ended"],
        "headline": changes.headline(record, news),
        "news": news,
        "text": "\n".join([*lines, *([""] if lines else []), *whole]),
        "record": record["artifacts"]["json"],
    }


def last_lines(output: str) -> str:
    """The end of ansible's output in one line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return " / ".join(lines[-LAST_LINES:])[:1500] or "it has said nothing"


def usual_place(path: Path) -> store.Store:
    """A store whose folders are there. Raises lock.Unusable."""
    place = store.Store(path)
    why = place.prepare()
    if why:
        raise lock.Unusable(why)
    return place
