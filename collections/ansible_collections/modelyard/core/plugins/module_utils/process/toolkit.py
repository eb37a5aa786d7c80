"""The CUDA toolkit of a host: installed when the dry run does nothing else. Standard library only."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan.driver import before, steps
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver.allowed import Wanted
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver.steps import Step
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.process.packages import exact, of_host
from ansible_collections.modelyard.core.plugins.module_utils.process.packages.run import LOG, Failed
from ansible_collections.modelyard.core.plugins.module_utils.survey import packages, stack


class Outcome(NamedTuple):
    """`steps`: done, or to be done in check mode."""

    findings: List[Dict[str, str]]
    steps: List[Step]
    done: bool


def install(wanted: Wanted, host: Dict[str, object], limits: exact.Limits, tool_path: Sequence[str], check_mode: bool) -> Outcome:
    """Refuse or do. Cards in use do not matter: nothing that runs uses these files yet.

    :param host: `name` in findings, `uid`, `user`, and `usr_mib` that must be free.
    """
    where = str(host["name"])
    manager = of_host(packages.look(limits.sysroot)["manager"], limits.sysroot, tool_path)
    if manager is None:
        what = "there is no package manager that is known"
        return Outcome([finding("DR-BROKEN", where, what, "an admin installs the toolkit")], [], False)
    planned = exact.plan(manager, wanted, where)
    if host["uid"] == 0 and not check_mode and (planned.changes or planned.findings):
        planned = exact.fresh(manager, wanted, where, limits)
    todo = steps.of_packages([], planned.changes)
    found = list(planned.findings)
    if todo:
        found += before.root({"host": host}, [step.words for step in todo])
        found += before.room([before.Room("/usr", stack.free(limits.sysroot, "/usr"), int(str(host["usr_mib"])))], where)
    if found or check_mode or not todo:
        return Outcome(found, todo, False)
    try:
        manager.install(planned.request, limits.limit_s, limits.wait_s)
    except Failed as exc:
        do = f"read {LOG} on the host, correct what it names, and run again"
        return Outcome([finding("DR-FAILED", where, str(exc), do)], todo, True)
    return Outcome([], todo, True)
