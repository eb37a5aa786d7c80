"""start.sh: start what does not run, in waves, and wait until it answers."""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.process import layout, opened, proc, sockets
from ansible_collections.modelyard.core.plugins.module_utils.process import supervisor as supervisors
from ansible_collections.modelyard.core.plugins.module_utils.process.by_hand import deployed, gateway, wishes
from ansible_collections.modelyard.core.plugins.module_utils.process.by_hand.deployed import Deployed, Instance, Refused
from ansible_collections.modelyard.core.plugins.module_utils.survey import watching

Say = Callable[[str], None]
START, SKIP, REFUSE = "start", "skip", "refuse"
STEP_S = 1.0


class Verdict(NamedTuple):
    """What is to be done with one instance, and why."""

    instance: Instance
    action: str
    why: str
    request: Dict[str, Any]


def judge(instance: Instance, request: Dict[str, Any], listening: Mapping[int, Optional[int]]) -> Verdict:
    """`listening`: ports that somebody listens on, with the pid where it may be seen."""
    state = layout.state(instance.folder)
    if state and layout.leader_alive(state):
        where = f"pid {state['leader']['pid']}, port {state['request']['port']}"
        if state["request"]["digest"] == request["digest"]:
            return Verdict(instance, SKIP, f"runs already: {where}", request)
        why = f"it runs with other parameters than this start asks for: {where}; stop it first to change them"
        return Verdict(instance, REFUSE, why, request)
    if state and layout.keeper_alive(state):
        why = f"parts of its last start live on (keeper pid {state['keeper']['pid']}): stop it first"
        return Verdict(instance, REFUSE, why, request)
    port = int(request["port"])
    if port in listening:
        pid = listening[port]
        who = f"pid {pid} ({proc.command(pid) or 'unknown'})" if pid else "a process that you may not look into"
        return Verdict(instance, REFUSE, f"port {port} is taken by {who}; it is left alone. BASE_PORT chooses others", request)
    return Verdict(instance, START, "", request)


def listening() -> Dict[int, Optional[int]]:
    """Every port that somebody listens on, with the pid of the owner where it may be seen."""
    found = sockets.listeners()
    owners = sockets.socket_owners(opened.handles(proc.processes())) if found else {}
    return {listener.port: owners.get(listener.inode) for listener in found}


def run(service: Deployed, words: Sequence[str], environment: Mapping[str, str], say: Say) -> int:
    """Exit code: 0 all that was asked for runs (and answers, unless WAIT=0), 1 something of it does not. Raises Refused."""
    wish, wrong = wishes.read(environment, service.info)
    problems = [deployed.user_problem(service), deployed.lock_problem(service), deployed.admin_problem(service)]
    reasons = [*wrong, *(problem for problem in problems if problem)]
    if reasons:
        raise Refused(*reasons)
    instances = deployed.chosen(service, words)
    if wish.first is not None:
        instances = instances[: wish.first]
    taken = listening()
    verdicts = [judge(i, wishes.applied(i.request, wish), taken) for i in instances]
    if not service.info.get("eager_off", True) and any("--no-enforce-eager" in v.request.get("words", []) for v in verdicts):
        raise Refused("EAGER=0: this release of vLLM has no option for it. Remove enforce_eager from the inventory and deploy")
    for verdict in verdicts:
        if verdict.action != START:
            say(f"{verdict.instance.name}: {'skipped, it ' if verdict.action == SKIP else 'REFUSED: '}{verdict.why}")
    failed = any(verdict.action == REFUSE for verdict in verdicts)
    wanted = [v for v in verdicts if v.action == START]
    there: List[Instance] = []
    try:
        whole = _waves(service, wanted, wish, there, say)
    except KeyboardInterrupt:
        left = [v.instance.name for v in wanted if v.instance not in there]
        if left:
            say(f"not started, or not waited for: {', '.join(left)}")
        raise
    watched = [v.instance for v in verdicts if v.action == SKIP] + there
    doors = gateway.Doors(service, say)

    def ready(instance: Instance) -> None:
        if instance in there:
            doors.admit(instance)

    if wish.wait and watched:
        whole = _wait(watched, wish.timeout_s, say, ready) and whole
    else:
        for instance in there:  # nobody waits here; the gateway looks itself whether they answer
            doors.admit(instance)
    served = _gateway(service, wish, say)
    doors.open()
    return 0 if whole and not failed and served and doors.whole else 1


def _gateway(service: Deployed, wish: wishes.Wishes, say: Say) -> bool:
    """Start the service's gateway where one was deployed, does not run and has somebody to serve; False when it does not come."""
    living = [state for state in (layout.state(one.folder) for one in service.instances) if state and layout.leader_alive(state)]
    if not living or gateway.runs(service):
        return True
    try:
        kept = gateway.deployed_of(service)
        return kept is None or run(kept, [], {"WAIT": "1" if wish.wait else "0"}, say) == 0
    except Refused as refused:
        for reason in refused.reasons:
            say(f"gateway: REFUSED: {reason}")
        return False


def _waves(service: Deployed, wanted: List[Verdict], wish: wishes.Wishes, there: List[Instance], say: Say) -> bool:
    """Start them; True when all are there. `there` gets each that runs, also one that somebody else has started meanwhile."""
    recorded = str(service.info.get("python", ""))
    python = recorded if os.access(recorded, os.X_OK) else sys.executable
    began = time.monotonic()
    for place, verdict in enumerate(wanted):
        if place and place % wish.wave == 0:
            time.sleep(max(0.0, began + wish.stagger_s - time.monotonic()))
            began = time.monotonic()
            if _dead(there, say):
                say(f"not started: {', '.join(v.instance.name for v in wanted[place:])}, because one before them ended at once")
                return False
        # Looked at anew each time: eight instances take most of a minute, and a teardown may have begun meanwhile.
        problem = deployed.lock_problem(service) or deployed.admin_problem(service)
        if problem:
            say(f"not started: {', '.join(v.instance.name for v in wanted[place:])}: {problem}")
            return False
        try:
            state = supervisors.start_once(verdict.instance.folder, verdict.request, python)
        except supervisors.Running as exc:
            say(f"{verdict.instance.name}: skipped, somebody else was quicker: {exc}")
            there.append(verdict.instance)
            continue
        except (supervisors.StartError, OSError) as exc:
            say(f"{verdict.instance.name}: REFUSED: {exc}")
            if wanted[place + 1 :]:
                say(f"not started: {', '.join(v.instance.name for v in wanted[place + 1 :])}")
            return False
        there.append(verdict.instance)
        more = "".join(f" {word}" for word in verdict.request.get("words", []))
        name = (state.get("supervised") or {}).get("name") or ""
        say(
            f"{verdict.instance.name}: started, pid {state['leader']['pid']}, port {verdict.request['port']}"
            f"{f', {name}' if name else ''}{f', with{more}' if more else ''}; log {state['log']}"
        )
    return True


def _dead(instances: Sequence[Instance], say: Say) -> bool:
    found = False
    for instance in instances:
        state = layout.state(instance.folder)
        if state is None or not layout.leader_alive(state):
            _tell_death(instance, watching.look(instance.folder), say)
            found = True
    return found


def _tell_death(instance: Instance, seen: Mapping[str, Any], say: Say) -> None:
    say(f"{instance.name}: {seen['words']} after {seen['elapsed_s']:.0f} s. Its log says:")
    for line in seen["deciding"]:
        say(f"    {line[:400]}")
    say(f"  whole log: {seen['log']}")


def _wait(instances: Sequence[Instance], timeout_s: float, say: Say, ready: Callable[[Instance], None]) -> bool:
    """Show what the engines are doing until each answers, has ended or is out of time; True when all answer.

    `ready` is told of each that answers, at once.
    """
    waiting = {instance.index: instance for instance in instances}
    told: Dict[int, str] = {}
    whole = True
    while waiting:
        for index, instance in list(waiting.items()):
            seen = watching.look(instance.folder)
            if seen["ended"]:
                _tell_death(instance, seen, say)
            elif told.get(index) != seen["words"]:
                told[index] = seen["words"]
                say(f"  [{seen['elapsed_s']:4.0f} s] {instance.name}: {seen['words']}")
            late = not seen["ready"] and not seen["ended"] and seen["elapsed_s"] > timeout_s
            if late:
                say(f"{instance.name}: does not answer after {timeout_s:.0f} s: {seen['words']}. It goes on; log {seen['log']}")
            if seen["ready"] or seen["ended"] or late:
                del waiting[index]
                whole = whole and seen["ready"]
            if seen["ready"]:
                ready(instance)
        if waiting:
            time.sleep(STEP_S)
    return whole
