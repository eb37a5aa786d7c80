"""What comes before the signals: one stop at a time, requests led elsewhere, a supervisor that starts nothing again."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import threading
import time
from typing import Any, Callable, Collection, Dict, Iterator, List, Mapping, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process import children, identity, layout, supervisor
from ansible_collections.modelyard.core.plugins.module_utils.process.stop.settings import Settings
from ansible_collections.modelyard.core.plugins.module_utils.survey import tool

Say = Callable[[str], None]
State = Optional[Mapping[str, Any]]
POLL_S = 0.2
#: Beyond the limit that a supervisor was given itself.
RELEASE_MARGIN_S = 10.0
SHOWN_CHARACTERS = 200


@contextlib.contextmanager
def alone(home: str, service: str, indexes: Collection[int], limit_s: float, say: Say) -> Iterator[None]:
    """Hold the instances' folders while they are stopped: a second stop would send a second SIGINT, which cuts requests off.

    Waits for another stop at most `limit_s`, then goes on: every signal is safe, only less gentle. The kernel frees the locks
    of a stop that was killed.
    """
    with contextlib.ExitStack() as held:
        for index in sorted(indexes):
            try:
                folder = os.open(str(layout.instance_dir(home, service, index)), os.O_RDONLY | os.O_DIRECTORY)
            except OSError:
                continue
            held.callback(os.close, folder)
            _lock(folder, f"{service}/{index}", limit_s, say)
        yield


def _lock(folder: int, name: str, limit_s: float, say: Say) -> None:
    limit = time.monotonic() + limit_s
    said = False
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= limit:
                say(f"another stop of {name} is still at work after {limit_s:.0f} s: going on beside it")
                return
            if not said:
                say(f"another stop of {name} is at work: waiting for it, {limit_s:.0f} s at most")
                said = True
            time.sleep(POLL_S)
        except OSError:  # a file system without locks
            return


def drain(service: str, ports: Mapping[int, int], settings: Settings, say: Say) -> None:
    """Run the drain command for each of these instances, at once: it leads requests elsewhere. Its failure stops nothing.

    `ports`: of the instances that serve, by index.
    """
    if not settings.drain_command or not ports:
        return
    try:
        words = shlex.split(settings.drain_command)
    except ValueError as exc:
        say(f"the drain command was not run, it cannot be read: {exc}: {settings.drain_command}")
        return
    programs = [
        children.Program(words, "", _environment(service, index, port), (), settings.drain_s) for index, port in ports.items()
    ]
    for index, end in zip(ports, children.run(programs, len(programs))):
        said = " ".join((end.err or end.out).split())[:SHOWN_CHARACTERS]
        how = {
            children.LATE: f"had not ended after {settings.drain_s:.0f} s and was ended",
            children.NOT_STARTED: "did not start",
        }
        words_for = how.get(end.how, f"ended with {end.code}")
        going = "" if end.code == 0 else "; stopping all the same"
        say(f"drain command for {service}/{index} {words_for} after {end.seconds:.1f} s{': ' + said if said else ''}{going}")


def _environment(service: str, index: int, port: int) -> Dict[str, str]:
    return tool.environment({identity.MARKER: service, identity.INSTANCE_MARKER: str(index), "MODELYARD_PORT": str(port)})


def release(home: str, service: str, states: Mapping[int, State], limit_s: float, say: Say) -> Tuple[List[str], List[str]]:
    """Let every instance's supervisor start nothing again; (what was done, what went wrong). With systemd it is the stop.

    Instances are released at the same time: each may take as long as a stop.
    """
    problems: List[str] = []
    all_done: List[str] = []
    lock = threading.Lock()

    def one(index: int, state: State) -> None:
        folder = layout.instance_dir(home, service, index)
        request = layout.read_json(folder / "instance.json") or dict((state or {}).get("request") or {})
        kind = str(request.get("supervisor") or "plain")
        act = getattr(supervisor.SUPERVISORS.get(kind), "release", None)
        if act is None:
            return
        try:
            done = act(folder, request, limit_s)
        except supervisor.NotReleased as exc:
            done = exc.done
            with lock:
                problems.append(f"{service}/{index}: {exc}")
        except Exception as exc:  # whatever it was, the processes are looked for all the same
            done = []
            with lock:
                problems.append(f"{kind} of {service}/{index} may start it again: {type(exc).__name__}: {exc}")
        with lock:
            all_done.extend(done)
            for words in done:
                say(words)

    threads = [threading.Thread(target=one, args=(index, state), daemon=True) for index, state in states.items()]
    for thread in threads:
        thread.start()
    limit = time.monotonic() + limit_s + RELEASE_MARGIN_S
    for thread in threads:
        thread.join(max(0.0, limit - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        with lock:
            problems.append(f"the supervisor of {service} had not answered after {limit_s:.0f} s")
    for problem in problems:
        say(problem)
    return all_done, problems
