"""A change of Hygon's driver and DTK on its host: look, judge, do, look again. Standard library only."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan import dtk as plan
from ansible_collections.modelyard.core.plugins.module_utils.plan.dtk import Findings, Step
from ansible_collections.modelyard.core.plugins.module_utils.process import fetched, proc, unpack, wheels
from ansible_collections.modelyard.core.plugins.module_utils.survey import dtk as survey
from ansible_collections.modelyard.core.plugins.module_utils.survey import host, tool
from ansible_collections.modelyard.core.plugins.module_utils.survey.device_files import below

CACHE = "/var/cache/modelyard"
LOG = "/var/log/modelyard-hygon-driver.log"
TOOL_LIMIT_S = 60.0
BACKEND = "hygon"


class Failed(Exception):
    """A step did not do what it should; the text says what."""


class Outcome(NamedTuple):
    """`steps`: done, or to be done in check mode. `reload`: why what is installed does not run yet; empty for not."""

    findings: Findings
    steps: List[Step]
    done: bool
    reload: str


class Change:
    """`args`: of the module hygon_dtk."""

    def __init__(self, args: Mapping[str, Any]) -> None:
        self.args = args
        self.name = str(args["host"])
        self.root = str(args["sysroot"])
        self.seen: Dict[str, Any] = {}

    def run(self, check_mode: bool) -> Outcome:
        """Everything; nothing is changed where there is a finding, or in check mode."""
        found = plan.wishes(self.name, self.args)
        if found:
            return Outcome(found, [], False, "")
        self._look()
        todo = plan.steps(self._facts(), self.args)
        may = not check_mode and self.seen["host"]["uid"] == 0
        files = self._files(todo, may)
        found = plan.forbidden(self.name, {**self._facts(), **self._against(todo, files)}, todo, self.args)
        if found or check_mode or not todo:
            return Outcome(found, todo, False, "" if found else plan.reload_reason(self._driver(), self.args["package"]))
        done: List[Step] = []
        try:
            Path(below(self.root, survey.FOLDER)).mkdir(mode=0o755, exist_ok=True)
            with unpack.alone(Path(below(self.root, survey.FOLDER))):
                for step in todo:
                    self._do(step, files)
                    done.append(step)
        except (Failed, unpack.Failed, OSError) as exc:
            return Outcome([plan.failed(self.name, str(exc), done)], done, bool(done), "")
        self._look()
        return Outcome([], done, True, plan.reload_reason(self._driver(), self.args["package"]))

    # -- looking -------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self.seen = host.look(host.Request(home=self.args["home"], backends=self.args["backends"], sysroot=self.root))

    def _driver(self) -> Dict[str, str]:
        empty = {"driver": {"loaded": "", "on_disk": ""}}
        return dict(self.seen["accelerators"].get(BACKEND, empty)["driver"])

    def _facts(self) -> Dict[str, Any]:
        """What plan.steps reads."""
        there = survey.look(self.root)
        place = below(self.root, f"{survey.FOLDER}/{survey.POINTER}")
        kind = ("link" if Path(place).is_symlink() else "folder") if os.path.exists(place) else "absent"
        seen = self.seen["accelerators"].get(BACKEND, {})
        files = [
            *seen.get("shared_files", ()),
            *(f for card in self.seen["cards"].get(BACKEND, ()) for f in card["device_files"]),
        ]
        # Nodes that everybody may open need no group, and root's own group is no right that is given away.
        closed = {file["group"] for file in files if file["mode"] and int(file["mode"], 8) & 0o006 != 0o006} - {"root", ""}
        return {
            "driver": self._driver(),
            "beside": there["beside"],
            "pointer": {"kind": kind, "version": there["version"]},
            "device_groups": sorted(closed),
            "groups": {user: groups_of(user) for user in self.args["users"]},
        }

    def _files(self, todo: Sequence[Step], may: bool) -> Dict[str, Dict[str, str]]:
        """{wanted file: {path, sha256, problem}} of the files that the steps need; those on a mirror are fetched where we may."""
        found = {}
        for step in todo:
            if step.kind not in ("driver", "unpack"):
                continue
            wanted = step.names[0]
            try:
                remote = fetched.is_remote(wanted)
                path = Path(below(self.root, CACHE)) / fetched.name(wanted) if remote else Path(wanted)
                if remote and may:
                    fetched.fetch(wanted, path.parent)
                if remote and not path.exists():  # only in check mode, and without root: then it is not known yet
                    found[wanted] = {"path": "", "sha256": "", "problem": ""}
                    continue
                found[wanted] = {"path": str(path), **self._judged(path)}
                if remote and found[wanted]["sha256"] not in (self.args["sha256"], self.args["package_sha256"]) and may:
                    path.unlink()  # the next run fetches it again
            except (fetched.Failed, OSError) as exc:
                found[wanted] = {"path": "", "sha256": "", "problem": str(exc)}
        return found

    @staticmethod
    def _judged(path: Path) -> Dict[str, str]:
        sums = fetched.sha256(path)
        wrong = "" if sums["problem"] else survey.writable_by_others(str(path))
        return {**sums, "problem": f"root does not take it from there: {wrong}"} if wrong else sums

    def _against(self, todo: Sequence[Step], files: Mapping[str, Mapping[str, str]]) -> Dict[str, Any]:
        """What plan.forbidden reads besides; what takes long only where a step needs it."""
        kinds = {step.kind for step in todo}
        tarball = files.get(self.args["tarball"], {})
        whole = tarball.get("path") and not tarball["problem"] and tarball["sha256"] == self.args["sha256"]
        empty = {"top": "", "mib": 0, "problem": ""}
        running = next((kernel for kernel in self.seen["stack"].get("kernels", ()) if kernel["running"]), None)
        return {
            "uid": self.seen["host"]["uid"],
            "user": self.seen["host"]["user"],
            "files": files,
            "archive": unpack.look(tarball["path"]) if "unpack" in kinds and whole else empty,
            "free_mib": wheels.free_mib(below(self.root, survey.FOLDER)),
            "kernel": self.seen["host"]["kernel"],
            "headers": running["headers"] if running else None,
            "programs": [name for name in plan.TOOLS if not self._find(name)] if "driver" in kinds else [],
            "card_users": self._card_users() if "driver" in kinds else [],
            "dtk_users": self._dtk_users() if "point" in kinds else [],
            "services": [n for n, s in sorted(self.seen["services"].items()) if any(i["alive"] for i in s["instances"])],
        }

    def _card_users(self) -> List[str]:
        entry = self.args["backends"][BACKEND]
        cards = self.seen["cards"].get(BACKEND, [])
        held = {pid for card in cards for pid in card["holders"]}
        held |= set(self.seen["accelerators"].get(BACKEND, {}).get("shared_holders", ()))
        return [words(pid) for pid in sorted(held) if (process := proc.read(pid)) and process.comm not in entry["bystanders"]]

    def _dtk_users(self) -> List[str]:
        """Processes with a file of the DTK in memory to which the pointer leads now, as far as this user may look."""
        place = below(self.root, f"{survey.FOLDER}/{survey.POINTER}")
        target = f"{os.path.realpath(place)}/" if os.path.exists(place) else ""
        return [
            words(pid) for pid in sorted(proc.processes()) if target and target in (proc.read_text(f"/proc/{pid}/maps") or "")
        ]

    def _find(self, name: str) -> str:
        return tool.find(name, self.args["tool_path"], ":".join(tool.SYSTEM_FOLDERS))

    # -- doing ---------------------------------------------------------------------------------------------------

    def _do(self, step: Step, files: Mapping[str, Mapping[str, str]]) -> None:
        if step.kind == "driver":
            self._install(files[step.names[0]]["path"])
        elif step.kind == "unpack":
            self._unpack(files[step.names[0]]["path"])
        elif step.kind == "point":
            self._point()
        else:
            self._must(["usermod", "-aG", ",".join(step.names[1:]), step.names[0]])

    def _install(self, package: str) -> None:
        """The vendor's installer, from a copy that is ours alone and has been compared once more."""
        wanted = plan.driver_of(self.args["package"])
        with tempfile.TemporaryDirectory(prefix="modelyard-") as own:
            copy = Path(own) / Path(package).name
            shutil.copyfile(package, str(copy))
            if fetched.sha256(copy)["sha256"] != self.args["package_sha256"]:
                raise Failed(f"{package} has changed since it was looked at")
            copy.chmod(0o700)
            answers = Path(own) / "answers"
            answers.write_text("".join(f"{answer}\n" for answer in self.args["answers"]), encoding="utf-8")
            script = 'exec "$1" <"$2"'
            done = tool.run(["/bin/sh", "-c", script, "sh", str(copy), str(answers)], float(self.args["limit_s"]))
        log = Path(below(self.root, LOG))
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as file:
            file.write(f"== {time.strftime('%Y-%m-%d %H:%M:%S')} {package}\n{done['stdout']}{done['stderr']}{done['note']}\n")
        if done["rc"] != 0:
            raise Failed(f"{Path(package).name} ended with {done['rc']} {done['note']}: {LOG} on the host has what it said")
        self._look()
        there = self._driver()["on_disk"]
        if plan.number(there) != plan.number(wanted):
            raise Failed(f"{Path(package).name} ended well, and this kernel has {there or 'no module of the driver'}: see {LOG}")
        if self.root == "/" and self._find(
            "systemctl"
        ):  # the driver's own service, where it runs; the vendor's guides ask for it
            tool.run([self._find("systemctl"), "try-restart", "hymgr.service"], TOOL_LIMIT_S)

    def _unpack(self, tarball: str) -> None:
        release = str(self.args["dtk"])
        place = Path(below(self.root, plan.folder(release)))
        fresh = unpack.unpack(tarball, str(unpack.look(tarball)["top"]), place)
        said = survey.version(str(fresh)) or plan.dtk_of(self.args["tarball"])
        if said != release:
            unpack.discard(fresh)
            raise Failed(f"it says that it is DTK {said}, and {release} is wanted; it was removed")
        unpack.settle(fresh, place)
        problem = survey.source(str(place / "env.sh")).problem
        if problem:
            raise Failed(f"{plan.folder(release)} is there, and {problem}; /opt/dtk was not changed")

    def _point(self) -> None:
        """At once, and to a folder whose env.sh was read: programs find the old one or the new one."""
        place = Path(below(self.root, f"{survey.FOLDER}/{survey.POINTER}"))
        beside = survey.look(self.root)["beside"]
        target = next(Path(folder).name for folder, version in beside.items() if version == self.args["dtk"])
        fresh = place.with_name(".dtk.modelyard")
        with contextlib.suppress(FileNotFoundError):
            fresh.unlink()
        fresh.symlink_to(target)
        fresh.replace(place)

    def _must(self, argv: Sequence[str]) -> None:
        program = self._find(argv[0])
        done = tool.run([program or argv[0], *argv[1:]], TOOL_LIMIT_S)
        if done["rc"] != 0:
            raise Failed(f"{' '.join(argv)} ended with {done['rc']}: {(done['stderr'] or done['note']).strip()[:300]}")


def groups_of(user: str) -> Optional[List[str]]:
    """Names of a user's groups; None for one that is not there."""
    try:
        own = grp.getgrgid(pwd.getpwnam(user).pw_gid).gr_name
    except KeyError:
        return None
    return [own, *(group.gr_name for group in grp.getgrall() if user in group.gr_mem)]


def words(pid: int) -> str:
    """`pid 4711 of user eve (python)`."""
    process = proc.read(pid)
    return f"pid {pid} of user {proc.user_name(process.uid)} ({process.comm})" if process else f"pid {pid}"
