"""Every task of the project's roles and playbooks, as YAML has it."""

from __future__ import annotations

import yaml
from unit import worlds

PLAYBOOKS = sorted((worlds.ROOT / "playbooks").glob("*.yml"))
#: What several playbooks share.
SHARED = sorted((worlds.ROOT / "playbooks").glob("tasks/*.yml"))
KEYWORDS = {
    *(
        "name",
        "when",
        "tags",
        "register",
        "loop",
        "loop_control",
        "vars",
        "become",
        "changed_when",
        "failed_when",
        "until",
    ),
    *("retries", "delay", "check_mode", "diff", "no_log", "delegate_to", "run_once", "notify", "listen", "environment"),
    *("block", "rescue", "always", "ignore_errors", "any_errors_fatal", "args", "throttle", "timeout"),
}


def load(path):
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else None


def walk(tasks, where):
    """Every task and block of a list, at every depth, with the place it stands in."""
    for task in tasks or []:
        yield where, task
        for part in ("block", "rescue", "always"):
            yield from walk(task.get(part), where)


def all_tasks():
    for file in sorted(worlds.ROOT.glob("roles/*/*/*.yml")):
        if file.parent.name in ("tasks", "handlers"):
            yield from walk(load(file), str(file.relative_to(worlds.ROOT)))
    for file in SHARED:
        yield from walk(load(file), str(file.relative_to(worlds.ROOT)))
    for file in PLAYBOOKS:
        for play in load(file):
            for part in ("pre_tasks", "tasks", "post_tasks", "handlers"):
                yield from walk(play.get(part), str(file.relative_to(worlds.ROOT)))


TASKS = list(all_tasks())


def action(task):
    """(module, arguments) of a task; None for a block."""
    keys = [key for key in task if key not in KEYWORDS]
    return (keys[0], task[keys[0]]) if len(keys) == 1 else None
