"""A service as it was deployed: service.json and the instance.json of its instances."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.process import layout, lock, proc

#: What service.json and instance.json must hold for the scripts, and of which kind the rest is where it is there.
NEEDED = {"service": str, "instances": list}
USUAL: Dict[str, Any] = {
    "home": str,
    "start": dict,
    "stop": dict,
    "backends": dict,
    "backend": str,
    "python": str,
    "eager_off": list,
}
USUAL.update(sysroot=str, tool_path=list, ready_timeout_s=(int, float))
INSTANCE_NEEDED = {"name": str, "index": int, "supervisor": str, "session": str, "marker": dict}


class Refused(Exception):
    """What was asked for is not done; each of `reasons` says what was found and what to do."""

    def __init__(self, *reasons: str) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


@dataclass(frozen=True)
class Instance:
    """One instance: where it lives and what was deployed for it."""

    index: int
    folder: Path
    request: Dict[str, Any]

    @property
    def name(self) -> str:
        """As people know it: `qwen3-14b-32k/0`."""
        return str(self.request["name"])


class Deployed(NamedTuple):
    """One service."""

    home: str
    name: str
    folder: Path
    info: Dict[str, Any]
    instances: List[Instance]


def _listed(info: Mapping[str, Any]) -> bool:
    return all(isinstance(i, int) for i in info["instances"]) and all(isinstance(p, str) for p in info.get("tool_path", []))


def load(folder: Path) -> Deployed:
    """The service in this folder; raises Refused where something that was rendered is not there whole."""
    info = layout.read_json(folder / layout.SERVICE_FILE)
    if info is None or not layout.has_shape(info, NEEDED, USUAL) or not _listed(info):
        raise Refused(f"{folder / layout.SERVICE_FILE} is not there or not whole: deploy the service again")
    home = str(info.get("home", ""))
    if os.path.realpath(str(layout.service_dir(home, info["service"]))) != os.path.realpath(str(folder)):
        home = str(folder.parent.parent)  # the home was moved or is seen by another path
    instances, missing = [], []
    for index in info["instances"]:
        place = layout.instance_dir(home, info["service"], int(index))
        if not (place / layout.REQUEST_FILE).exists():
            continue  # a deploy of other instances only (`only=`) has not written it yet
        request = layout.read_json(place / layout.REQUEST_FILE) or {}
        if not layout.has_shape(request, INSTANCE_NEEDED) or not layout.is_request(request):
            missing.append(f"{place / layout.REQUEST_FILE} is not whole: deploy the service again")
        else:
            instances.append(Instance(int(index), place, request))
    if missing:
        raise Refused(*missing)
    if not instances:
        raise Refused(f"no instance of {info['service']} was ever written to {folder}: deploy the service again")
    return Deployed(home, info["service"], layout.service_dir(home, info["service"]), info, instances)


def chosen(service: Deployed, words: Sequence[str]) -> List[Instance]:
    """The instances that the words name by their numbers; all when there are none. Raises Refused for others."""
    known = {str(instance.index): instance for instance in service.instances}
    wrong = [word for word in words if word not in known]
    if wrong:
        raise Refused(f"{service.name} has no instance {', '.join(wrong)}; it has {', '.join(known)}")
    return [known[word] for word in dict.fromkeys(words)] if words else list(known.values())


def user_problem(service: Deployed) -> str:
    """Why this user may not start or stop the service; empty when he may."""
    owner = service.folder.stat().st_uid
    if os.geteuid() == owner:
        return ""
    name = proc.user_name(owner)
    return f"you are {proc.user_name(os.geteuid())}, and {service.name} belongs to {name}: log in as {name} (sudo -iu {name})"


def lock_problem(service: Deployed) -> str:
    """Who is deploying or tearing down in this home; empty for nobody."""
    path = lock.path(service.home)
    if not path.exists():
        return ""
    holder = layout.read_json(path) or {}
    return (
        f"PF-LOCK-HELD: {holder.get('what', 'a run')} by {holder.get('by', 'somebody unknown')} holds the lock of {service.home} "
        f"since {holder.get('since', 'an unknown time')}: wait for it to end. If that run has died, remove {path}"
    )


def admin_problem(service: Deployed) -> str:
    """Whether a person has something to do first; empty when not."""
    path = service.folder / layout.NEEDS_ADMIN
    if not path.exists():
        return ""
    report = (layout.read_json(path) or {}).get("report", "")
    return f"PF-NEEDS-ADMIN: a stop has left what only a person can solve: see {report or path}"
