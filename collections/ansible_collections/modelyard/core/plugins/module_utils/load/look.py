"""What a load test must know before it begins: do the instances run, who uses them, does the entry answer, how long is a word."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.load import generate
from ansible_collections.modelyard.core.plugins.module_utils.plan.flat import flat
from ansible_collections.modelyard.core.plugins.module_utils.plan.numbers import number
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, lock
from ansible_collections.modelyard.core.plugins.module_utils.survey import engine_metrics, http

#: Looks at the queues before the start, and the pause between two: short requests are seen as well.
LOOKS, PAUSE_S = 4, 0.4
PROBE_LIMIT_S = 60.0
#: Words of the two prompts by which it is found out how many tokens a word has.
SHORT, LONG = 8, 72


class Refused(Exception):
    """Why no load test is begun, with what to do."""


class Running:
    """One instance that runs: its address, its process, what it was started with."""

    def __init__(self, asked: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        request = state["request"]
        self.index = int(asked["index"])
        self.cards, self.devices = asked["cards"], asked["devices"]
        self.host, self.port = str(request["host"]), int(request["port"])
        self.digest = str(request["digest"])
        self.leader = (int(state["leader"]["pid"]), int(state["leader"]["start"]))
        self.keeper = int(state["keeper"]["pid"])
        self.log = str(state["log"])
        self.words = [str(word) for word in request["launch"].get("argv") or []]

    @property
    def address(self) -> Tuple[str, int]:
        """Where it answers on its own host."""
        return http.reachable(self.host), self.port

    @property
    def slots(self) -> Optional[int]:
        """Requests that it computes at once; None where the command line leaves it to the release."""
        return number(option(self.words, "--max-num-seqs"))


def option(words: Sequence[str], name: str) -> str:
    """The last value of an option in a command line; empty for none."""
    found = [words[place + 1] for place, word in enumerate(words[:-1]) if word == name]
    found += [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]
    return found[-1] if found else ""


def instances(home: str, request: Mapping[str, Any]) -> List[Running]:
    """The instances that are asked for. Raises Refused where one does not run or does not answer."""
    found, wrong = [], []
    for asked in request["instances"]:
        name = f"{request['service']}/{asked['index']}"
        state = layout.state(layout.instance_dir(home, request["service"], int(asked["index"])))
        if state is None or not layout.leader_alive(state):
            wrong.append(f"{name} does not run")
            continue
        one = Running(asked, state)
        if http.status(one.address, "/health") != 200:
            wrong.append(f"{name} does not answer /health on port {one.port} (log: {one.log})")
        found.append(one)
    if wrong or not found:
        said = "; ".join(wrong) or f"{request['service']} has no instances"
        raise Refused(f"{said}. Deploy or prove it first (playbooks/deploy.yml, playbooks/acceptance.yml)")
    return found


def nobody_deploys(home: str) -> None:
    """A deploy or teardown in work would be measured, too."""
    if lock.path(home).exists():
        held = layout.read_json(lock.path(home)) or {}
        what, who = held.get("what", "deploy or teardown"), held.get("by", "somebody")
        raise Refused(f"a {what} of this home is going on ({who}, since {held.get('since', '?')}). Wait for it, then run again")


def nobody_else(request: Mapping[str, Any], running: Sequence[Running]) -> str:
    """Refuse while others use the service; what is to be noted where that was allowed. Raises Refused."""
    most = {"running": 0.0, "waiting": 0.0}
    known = False
    for _ in range(LOOKS):
        told = [engine_metrics.ask(one.address, request["metrics"]) for one in running]
        for key, before in most.items():
            values = [figures[key] for figures in told if figures and key in figures]
            known = known or (key == "running" and bool(values))
            most[key] = max(before, sum(values))
        time.sleep(PAUSE_S)
    users, queue = int(most["running"]), int(most["waiting"])
    waits = f" and {queue} wait" if queue else ""
    count = f"{users} request{'s' if users != 1 else ''}"
    said = f"{count} of others {'is' if users == 1 else 'are'} running{waits}" if users or queue else ""
    if not known:
        said = "it is not known whether others use the service: its engines do not tell how many requests they have"
    if not said:
        return ""
    if not request["anyway"]:
        raise Refused(
            f"{said}: a load test would make them slow, and they would spoil its figures. Choose another time, or -e "
            "load_test_anyway=true"
        )
    return f"{said} when the test began: the figures hold for both together"


def key(home: str, request: Mapping[str, Any]) -> str:
    """The API key for the entry; empty for none. Raises Refused when the file that was named cannot be read."""
    named = request["key_file"]
    path = Path(named).expanduser() if named else layout.service_dir(home, request["service"]) / "api_key"
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        if not named:
            return ""
        raise Refused(f"load_test_key_file: there is no file {path} on the host") from None
    except (OSError, UnicodeDecodeError) as exc:
        raise Refused(f"the API key could not be read from {path}: {type(exc).__name__}") from None


def failure(answer: Mapping[str, Any], through_gateway: bool) -> str:
    """Why the first request was no success, and what to do."""
    if not answer["status"]:
        words = {"refused": "connection refused", "timeout": f"no answer within {PROBE_LIMIT_S:.0f} s"}
        return f"{words.get(answer['error'], answer['error'])}. playbooks/acceptance.yml says what is wrong"
    if answer["status"] == 401:
        where = (
            "Name a file on the host with a key for the gateway"
            if through_gateway
            else "Name a file on the host with the right key"
        )
        return f"HTTP 401, the API key was not accepted. {where}: load_test_key_file"
    body = answer["body"]
    said = json.dumps(body) if isinstance(body, (dict, list)) else str(body)
    return f"HTTP {answer['status']}: {said[:300]}"


def words_for(request: Mapping[str, Any], addresses: Sequence[Tuple[str, int]], secret: str) -> int:
    """Words of a prompt that has the wanted number of tokens. Asks each address once or twice. Raises Refused.

    It is the first request of the test as well: what does not answer one request is not asked hundreds.
    """
    counts = {}
    for place, address in enumerate(addresses):
        for words in (SHORT, LONG) if not place else (SHORT,):
            shape = {**request["shape"], "output_tokens": 1}
            asked = {**generate.body(request["model"], shape, words, f"probe {words}"), "stream": False}
            asked.pop("stream_options")
            answer = http.request(address, "POST", "/v1/chat/completions", asked, secret, PROBE_LIMIT_S)
            if answer["status"] != 200:
                raise Refused(f"the first request, to port {address[1]}, failed: {failure(answer, bool(request['gateway']))}")
            usage = answer["body"].get("usage") if isinstance(answer["body"], dict) else None
            counts[words] = int((usage or {}).get("prompt_tokens") or 0)
    wanted = int(request["shape"]["input_tokens"])
    short, long = counts[SHORT], counts[LONG]
    each = (long - short) / (LONG - SHORT)
    if each <= 0:
        return wanted
    return max(1, round((wanted - (short - each * SHORT)) / each))


def fits(request: Mapping[str, Any], running: Sequence[Running]) -> None:
    """Refuse requests that the engine would refuse one by one. Raises Refused."""
    wanted = request["shape"]["input_tokens"] + request["shape"]["output_tokens"]
    lengths = [length for length in (number(option(one.words, "--max-model-len")) for one in running) if length and length > 0]
    if lengths and wanted > min(lengths):
        raise Refused(
            f"load_test_input_tokens and load_test_output_tokens are {wanted} together, max_model_len is {min(lengths)}: "
            "choose less"
        )


def deployed(home: str, request: Mapping[str, Any], running: Sequence[Running]) -> Dict[str, Any]:
    """What is measured: {runtime, parameters, parameters_digest, slots, instances} for the record."""
    manifest = layout.read_json(layout.service_dir(home, request["service"]) / "manifest.json") or {}
    versions = manifest.get("versions")
    known = {str(name): str(value) for name, value in versions.items()} if isinstance(versions, dict) else {}
    parts = {key: manifest[key] for key in ("engine", "topology") if isinstance(manifest.get(key), dict)}
    slots = [one.slots for one in running]
    words = {"max_num_seqs in the command line": str(slots[0])} if len(set(slots)) == 1 and slots[0] else {}
    return {
        "runtime": {"vllm": request["release"], **known},
        "parameters": {**flat(parts), **words},
        "parameters_digest": hashlib.sha256(" ".join(sorted(one.digest for one in running)).encode()).hexdigest()[:16],
        "slots": sum(slot for slot in slots if slot) if all(slots) else None,
        "instances": len(running),
    }
