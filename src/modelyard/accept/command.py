"""Run playbooks/acceptance.yml for an inventory, keep the result, and tell people what has changed.

Asks as acceptance.yml does, and restarts nothing.
"""

from __future__ import annotations

import argparse
import random
import time
import traceback
from pathlib import Path

from modelyard import checkout, report, say
from modelyard.accept import answer, config, course, lock, state_dir

HELP = "prove that what is deployed serves, keep the history, tell what has changed"
USAGE, UNDER_WAY = 2, 6
#: Words of ansible-playbook that would wait for a person.
PROMPTS = ("-k", "-K", "-J", "--ask-pass", "--ask-become-pass", "--ask-vault-pass", "--ask-vault-password", "--step")
EPILOG = """exit status:
  0  accepted: every service has passed
  1  failed: at least one has not
  2  wrong arguments or configuration; nothing was asked
  3  unreachable: hosts could not be reached, nothing else is wrong
  4  busy: loaded services could not be judged, nothing else is wrong
  5  error: no answer (inventory, playbook, state folder, interrupted)
  6  another run is under way; nothing was asked
Words after `--` go to ansible-playbook: modelyard accept -i inventory/prod -- -u llm --forks 50"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `modelyard accept`."""
    parser.add_argument("-i", "--inventory", action="append", required=True, help="as for ansible-playbook; several are allowed")
    parser.add_argument("-l", "--limit", default="", help="only these hosts")
    parser.add_argument("--depth", choices=("quick", "full"), help="how far the ladder is walked")
    parser.add_argument("--state", type=Path, help="folder for history and outbox (default: below ~/.local/state/modelyard)")
    parser.add_argument("--config", type=Path, help=f"whom to tell (default: {config.NAME} of the checkout)")
    parser.add_argument("-e", "--extra-vars", action="append", default=[], help="as for ansible-playbook; secrets: -e @FILE")
    parser.add_argument("--vault-password-file", action="append", default=[], help="as for ansible-playbook")
    parser.add_argument("--vault-id", action="append", default=[], help="as for ansible-playbook, without @prompt")
    parser.add_argument("--trigger", choices=("person", "timer"), default="person", help="who has started it")
    parser.add_argument("--random-delay", type=float, default=0, metavar="SECONDS", help="wait a random time up to this first")
    parser.add_argument("--quiet", action="store_true", help="print only errors, and news that nobody else is told")
    parser.add_argument("ansible", nargs="*", help=argparse.SUPPRESS)


def run_words(args: argparse.Namespace) -> list[str]:
    """Further words for ansible-playbook."""
    words = [word for value in args.extra_vars for word in ("-e", _path(value))]
    words += [word for value in args.vault_password_file for word in ("--vault-password-file", _path(value))]
    words += [word for value in args.vault_id for word in ("--vault-id", _path(value))]
    if args.depth:
        words += ["-e", f"acceptance_depth={args.depth}"]
    return [*words, *args.ansible]


def _path(value: str) -> str:
    """ansible-playbook works in the checkout, so a file (FILE, @FILE, LABEL@FILE) is named by its whole path."""
    label, at, name = value.rpartition("@")
    path = Path(name).expanduser()
    return f"{label}{at}{path.resolve()}" if name and path.is_file() else value


def _refused(args: argparse.Namespace) -> str:
    if args.ansible and not args.ansible[0].startswith("-"):
        return f"{args.ansible[0]} is no argument; see --help. Words for ansible-playbook stand behind --"
    asking = [word for word in args.ansible if word in PROMPTS] + [v for v in args.vault_id if v.endswith("@prompt")]
    if asking:
        return f"{asking[0]} waits for a person, and nobody may be there: give a file instead (--vault-password-file FILE)"
    if args.random_delay < 0:
        return "--random-delay must not be negative"
    return ""


def run(args: argparse.Namespace) -> int:
    """Everything from the arguments to the exit status. A defect of this tool is no answer, and status 1 would be one."""
    try:
        return _run(args)
    except Exception:
        return _say(f"{traceback.format_exc()}modelyard accept: a defect of this tool; report it", answer.EXIT[answer.ERROR])


def _run(args: argparse.Namespace) -> int:
    wrong = _refused(args)
    if wrong:
        return _say(f"modelyard accept: {wrong}", USAGE)
    try:
        settings = config.read(args.config, checkout.root())
    except config.Wrong as exc:
        return _say(f"modelyard accept: the configuration is wrong, nothing was asked\n{exc}", USAGE)
    folder = (args.state or state_dir.usual(args.inventory)).expanduser().absolute()
    request = course.Request(args.inventory, args.limit, run_words(args), args.trigger)
    try:
        time.sleep(random.uniform(0, args.random_delay))
        place = course.usual_place(folder)
        with lock.taken(folder, args.trigger) as held:
            outcome = course.accept(request, settings, place, held)
    except lock.Held as exc:
        return _say(f"modelyard accept: {exc}. Nothing was asked", UNDER_WAY)
    except lock.Unusable as exc:
        how = "give this user the folder, or name another one with --state"
        return _say(f"modelyard accept: the state cannot be kept: {exc}. Nothing was asked; {how}", answer.EXIT[answer.ERROR])
    except KeyboardInterrupt:
        return _say("modelyard accept: ended before it was done; the next run tells what was not told", answer.EXIT[answer.ERROR])
    if not args.quiet:
        say.out(report.words(outcome.record).rstrip())
        record = Path(outcome.record["artifacts"]["json"])
        if record.exists():  # a full disk has taken it, and what is said below says so
            say.out(f"Record: {record} (.html, .xml, .log beside it)")
        if outcome.told:
            say.out(f"Told: {', '.join(outcome.told)}")
    elif outcome.news:
        say.out(outcome.news)  # cron sends it to somebody
    elif outcome.record["answer"] == answer.ERROR:
        say.err(report.words(outcome.record).rstrip())
    for line in outcome.words:
        say.err(f"modelyard accept: {line}")
    return answer.EXIT[str(outcome.record["answer"])]


def _say(text: str, status: int) -> int:
    say.err(text)
    return status
