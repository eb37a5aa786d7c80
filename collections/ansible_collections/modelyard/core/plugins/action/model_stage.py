"""Action: stage a model, with what is shown meanwhile; or check what is there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.module_utils.process.staging import fetch, serve
from ansible_collections.modelyard.core.plugins.module_utils.process.staging.sources import HUBS
from ansible_collections.modelyard.core.plugins.plugin_utils import control, staging
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

display = Display()


class ActionModule(ActionBase):  # type: ignore[misc]
    """`model` of the plan's models; `state`: staged, checked (every hash), or recorded (hash what was made there).

    `copies`: folder on the control node for copies that hosts are fed from. `told`: what a record says of where it came from.

    Tokens are read from the variable that `tokens` names, so that they are no argument of a task.
    """

    TRANSFERS_FILES = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Unchanged when nothing was missing."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        args, variables = plain(self._task.args), task_vars or {}
        model, host = args["model"], str(variables.get("inventory_hostname", ""))
        source = model["source"]
        result.update(changed=False, path=model["path"])
        if self._task.check_mode:
            result.update(changed=args["state"] == "staged")
            words = f"would be staged from {source['from']} {source['at']}: {model['reason']}" if result["changed"] else ""
            display.display(f"  {model['path']} {words or 'would be read, every file'}")
            return result
        tokens = plain(self._templar.template(variables.get(args["tokens"], {})))
        token = str(tokens.get(source["from"], "") or "")
        here = staging.Side(self._on_host(variables), model["path"], source, token, control.holder("staging"), control.has_died)
        try:
            if args["state"] == "checked":
                return self._checked(result, here, host)
            if args["state"] == "recorded":
                result.update(changed=True, files=len(here.ask("record", told=args["told"])["known"]))
                return result
            told = self._staged(here, model, args["copies"], variables)
        except (staging.Refused, serve.Failed) as exc:
            with contextlib.suppress(serve.Failed, staging.Refused):
                here.ask("end")
            words = str(exc).replace(token, "***") if token else str(exc)
            kept = f"Nothing was deleted; {here.path} keeps all that has come so far."
            result.update(failed=True, msg=f"{model['id']} could not be staged on {host}: {words}. {kept}")
            return result
        for note in told.notes:
            display.display(f"  {model['id']}: {note}")
        result.update(changed=True, files=told.files, bytes=told.fetched, notes=told.notes)
        return result

    def _staged(self, here: staging.Side, model: dict[str, Any], copies: str, variables: dict[str, Any]) -> staging.Told:
        source = here.source
        where = source["at"] or source["from"]
        named = f" {source['repo']}" if source["from"] in HUBS else ""
        who = "control node" if source["by"] == "control" else "host"
        display.display(f"  {model['id']}: {model['reason']}; taken from {where}{named} by the {who}")
        if source["by"] == "host":
            return staging.bring(here, staging.offer(here), display.display)
        folder = source["at"] if source["from"] == "folder" else self._copy(here, copies)
        side = here._replace(source={**source, "from": "folder", "at": folder, "subfolder": ""}, call=_here)
        if source["from"] == "folder":
            side.source["subfolder"] = source["subfolder"]
        found = staging.with_hashes(staging.offer(side))
        fed = here._replace(source={**source, "from": fetch.FED, "at": where})
        with self._brought(variables) as put:
            return staging.bring(fed, found, display.display, put)

    def _copy(self, here: staging.Side, copies: str) -> str:
        """The copy on this machine that hosts are fed from, fetched by whoever comes first; the others wait for it."""
        source = here.source
        parts = [source["from"], source["repo"], source["revision"], source["subfolder"]]
        folder = Path(copies).expanduser() / "--".join(part.replace("/", "--") for part in parts if part)
        side = here._replace(call=_here, path=str(folder))
        with _turn(folder):
            found = staging.offer(side)
            staging.bring(side, found, lambda words: display.display(f"{words} (copy on this machine)"))
        return str(folder)

    def _on_host(self, variables: dict[str, Any]) -> Callable[[str, dict[str, Any]], dict[str, Any]]:
        def call(phase: str, params: dict[str, Any]) -> dict[str, Any]:
            said = self._execute_module("modelyard.core.model_stage", module_args={**params, "phase": phase}, task_vars=variables)
            if said.get("failed"):
                words = str(said.get("msg") or said.get("module_stderr") or "it did not say why")
                more = {key: said[key] for key in ("status", "passing", "pause_s", "holder") if key in said}
                raise serve.Failed(words, **more)
            answer: dict[str, Any] = plain(said["answer"])
            return answer

        return call

    @contextlib.contextmanager
    def _brought(self, variables: dict[str, Any]) -> Iterator[Callable[[Path], str]]:
        """Takes a file of this machine to the host's temporary folder, which is emptied at the end."""
        folder = self._make_tmp_path()
        place = self._connection._shell.join_path(folder, "piece")

        def put(file: Path) -> str:
            self._transfer_file(str(file), place)
            self._fixup_perms2((folder, place))
            return str(place)

        try:
            yield put
        finally:
            self._remove_tmp_path(folder, force=True)

    @staticmethod
    def _checked(result: dict[str, Any], here: staging.Side, host: str) -> dict[str, Any]:
        """Every hash; wrong ones are findings, which the next look at the host has, too."""
        count, damaged = staging.check(here, display.display)
        result.update(files=count, damaged=damaged)
        if not count:
            display.display(f"  {here.path}: nothing is written down about its files; a staging would (modelyard_models, source)")
        if damaged:
            words = "; ".join(f"{name}: {text}" for name, text in sorted(damaged.items()))
            result.update(
                failed=True,
                msg=f"PF-MODEL-DAMAGED {host}:{here.path}: {words}. Stage it again: just these files are fetched, and what is "
                "there now is kept beside them. Nothing was changed.",
            )
        return result


def _here(phase: str, params: dict[str, Any]) -> dict[str, Any]:
    return serve.answer(phase, params)


@contextlib.contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """One at a time, over all hosts of this run and all runs of this machine; the kernel frees it."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        guard = os.open(folder.with_name(folder.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as exc:
        raise AnsibleActionFail(f"{folder}: the copy cannot be kept there: {exc.strerror}. Set model_copies.") from exc
    try:
        said = False
        while True:
            try:
                fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not said:
                    display.display(f"  {folder.name}: is being fetched for another host; waiting for it")
                said = True
                time.sleep(1.0)
        yield
    finally:
        os.close(guard)
