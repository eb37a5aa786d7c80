"""Tell what waits from earlier runs, or a test message, to everybody in modelyard.yml."""

from __future__ import annotations

import argparse
import socket
import time
from pathlib import Path

from modelyard import checkout, say
from modelyard.accept import config, course, lock, state_dir
from modelyard.tell import deliver, outbox

HELP = "tell what waits from earlier runs, or a test message"
USAGE, NOT_TOLD = 2, 1
EPILOG = """exit status:
  0  everything was told
  1  something was not; it is said why
  2  wrong arguments or configuration"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `modelyard tell`."""
    parser.add_argument("-i", "--inventory", action="append", default=[], help="inventory whose waiting messages are told")
    parser.add_argument("--state", type=Path, help="the folder that was given to `modelyard accept`")
    parser.add_argument("--config", type=Path, help=f"file with whom to tell (default: {config.NAME} of the checkout)")
    parser.add_argument("--test", action="store_true", help="send a test message, once, and keep nothing")


def run(args: argparse.Namespace) -> int:
    """Everything from the arguments to the exit status."""
    try:
        settings = config.read(args.config, checkout.root())
    except config.Wrong as exc:
        return _say(f"modelyard tell: the configuration is wrong\n{exc}", USAGE)
    if not settings.tell:
        return _say(f"modelyard tell: nobody is to be told. Write whom under tell: in {args.config or config.NAME}", USAGE)
    if args.test:
        return _test(settings)
    if not (args.inventory or args.state):
        return _say("modelyard tell: give -i INVENTORY or --state FOLDER, or --test", USAGE)
    folder = (args.state or state_dir.usual(args.inventory)).expanduser().absolute()
    try:
        place = course.usual_place(folder)
        with lock.taken(folder, "person"):
            box = outbox.Outbox(place.folder)
            waiting = len(box.waiting())
            box.send(settings.tell, None, settings.tell_limit_s)
    except (lock.Held, lock.Unusable) as exc:
        return _say(f"modelyard tell: {exc}", NOT_TOLD)
    for line in box.words:
        say.out(line)
    if not box.words:
        say.out(f"Told: {waiting} message(s)" if waiting else "Nothing waits")
    return NOT_TOLD if box.words else 0


def _test(settings: config.Config) -> int:
    now = time.time()
    words = f"A test message of modelyard on {socket.gethostname()}. Nothing has happened."
    message = {
        "schema": 1,
        "id": "test",
        "at": now,
        "inventory": "",
        "limit": "",
        "answer": "accepted",
        "before": None,
        "changed_since": "test",
        "headline": "Modelyard acceptance: a test message",
        "news": [],
        "text": words,
        "record": "/dev/null",
    }
    names = [way["name"] for way in settings.tell]
    failed = deliver.all_ways(settings.tell, {name: [message] for name in names}, settings.tell_limit_s)
    for name in names:
        say.out(f"{name}: {failed[name].get('test') or 'told'}")
    return NOT_TOLD if any(failed.values()) else 0


def _say(text: str, status: int) -> int:
    say.err(text)
    return status
