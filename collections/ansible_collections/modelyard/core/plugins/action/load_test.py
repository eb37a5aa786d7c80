"""Action: carry out a load test of one service, show how far it is, and report."""

from __future__ import annotations

import contextlib
import signal
import uuid
from collections.abc import Iterator
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.module_utils.judge.load import report
from ansible_collections.modelyard.core.plugins.module_utils.plan import load_test, only, tables
from ansible_collections.modelyard.core.plugins.plugin_utils import call, control, version
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

display = Display()
#: Each look costs the host half a second of processor that the engines need.
LOOK_S = 8.0
NOTHING_ELSE = "Nothing was restarted or stopped."


class Ended(BaseException):
    """This run was asked to end; the argument is the signal."""


class ActionModule(ActionBase):  # type: ignore[misc]
    """Arguments: `service` of the plan, `intent`, `options` (the role's inputs without their prefix)."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Returns `path` and, when it passed, `record`. Fails when limits were not kept or the test could not be carried out."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        args, variables = plain(self._task.args), task_vars or {}
        service, intent, name = args["service"], args["intent"], args["service"]["name"]
        host = str(variables.get("inventory_hostname", ""))
        result.update(changed=False, service=name)
        options, wrong = load_test.options(args["options"])
        wrong = wrong or load_test.complaints(options, service)
        if wrong:
            result.update(failed=True, msg=f"{name} was not tested: {'; '.join(wrong)}")
            return result
        if self._task.check_mode:
            result["skipped"] = True
            return result
        request = self._request(service, intent, options)
        common = {"home": intent["home"], "service": name, "id": uuid.uuid4().hex}
        begin = {**common, "state": "begin", "request": request, "holder": control.holder("load test")}
        with self._ended_with_us(common, variables):
            try:
                begun = call.module(self, "load_test", begin, variables)
            except AnsibleActionFail as exc:
                result.update(failed=True, msg=f"{name} was not tested: {str(exc).rstrip('.')}. {NOTHING_ELSE}")
                return result
            values = ", ".join(f"{level['value']:g}" for level in request["levels"])
            display.display(f"  loading {name} on {host} with {begun['tool']}: {request['shape']['kind']} {values}")
            ended = self._watch(host, common, variables)
        return self._told(result, host, ended)

    @contextlib.contextmanager
    def _ended_with_us(self, common: dict[str, Any], variables: dict[str, Any]) -> Iterator[None]:
        """When this run is ended (Ctrl-C) or cannot look any more, the test is ended too, before anything else happens.

        Only the one that bears our id. Where even that fails it ends by itself, because nobody looks.
        """
        before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

        def once() -> None:
            for number in before:
                signal.signal(number, signal.SIG_IGN)

        def asked(number: int, _: Any) -> None:
            once()  # Ansible sends SIGTERM right behind SIGINT, which would end what is done about the first
            raise Ended(number)

        try:
            for number in before:
                signal.signal(number, asked)
        except ValueError:  # signals are for the main thread, which this is as a rule
            before.clear()
        try:
            yield
        except BaseException as exc:
            once()
            with contextlib.suppress(Exception):
                call.module(self, "load_test", {**common, "state": "stop"}, variables)
            number = exc.args[0] if isinstance(exc, Ended) else 0
            if callable(before.get(number)):
                before[number](number, None)
            raise
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @staticmethod
    def _request(service: dict[str, Any], intent: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        """What the host is to do, with what it needs of the tables."""
        known = tables.accelerators().get(service["backend"])
        places = {"tool_places": [*intent["tool_path"], *known["tool_places"]]} if known else {}
        cards = {"entry": {**known, **places} if known else {}, "sysroot": intent["sysroot"]}
        meant = intent["only"].get(service["name"], []) if intent["only"] else []
        instances = [i for i in service["instances"] if only.concerns(intent["only"], service["name"], i["index"])]
        about = {**service, "instances": instances}
        bench = tables.bench(service["runtime"]["vllm_release"])
        return load_test.request(about, options, meant, bench, cards, version.project())

    def _watch(self, host: str, common: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Show news until the test has ended."""
        seen = 0
        while True:
            args = {**common, "state": "look", "seen": seen, "wait_s": LOOK_S}
            progress: dict[str, Any] = call.module(self, "load_test", args, variables)["progress"]
            for level in progress["levels"][seen:]:
                display.display(report.finished(host, level))
            seen = len(progress["levels"])
            if progress["ended"]:
                return progress
            if progress["now"]:
                display.display(report.progress(host, progress["now"]))

    @staticmethod
    def _told(result: dict[str, Any], host: str, ended: dict[str, Any]) -> dict[str, Any]:
        """The result of the task, after the report."""
        name = result["service"]
        if "record" not in ended:
            result.update(failed=True, msg=f"the load test of {name} was ended: {ended['stopped']}. {NOTHING_ELSE}")
            return result
        record = ended["record"]
        display.display("\n" + report.report(record, host))
        result.update(path=ended["path"])
        if ended["not_kept"]:
            result.update(failed=True, msg=f"{name}: {ended['not_kept']}; its figures stand above")
        elif not record["passed"]:
            complaints = "; ".join(record["complaints"])
            result.update(
                failed=True, msg=f"{name} did not pass its load test: {complaints}. Record: {ended['path']}. {NOTHING_ELSE}"
            )
        else:
            # Of a failure Ansible prints all that is returned: a hundred lines between the report and its reason.
            result["record"] = record
            display.display(f"  Record: {ended['path']}")
        return result
