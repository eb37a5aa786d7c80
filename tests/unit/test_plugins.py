"""Modules, action plugins and filters: their documentation is true."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sys

import pytest
import yaml
from unit import worlds
from unit.tasks import TASKS, action

MODULES = sorted(worlds.PLUGINS.glob("modules/*.py"))
FILTERS = sorted((worlds.ROOT / "filter_plugins").glob("*.py"))
ACTIONS = {p.stem for p in worlds.PLUGINS.glob("action/*.py")}


def constants(path):
    """The texts DOCUMENTATION, EXAMPLES and RETURN of a file."""
    found = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in ("DOCUMENTATION", "EXAMPLES", "RETURN"):
                found[name] = ast.literal_eval(node.value)
    return found


def argument_spec(path):
    """The literal that the module hands to AnsibleModule."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "AnsibleModule":
            words = {k.arg: ast.literal_eval(k.value) for k in node.keywords}
            assert words["supports_check_mode"] is True
            return words["argument_spec"]
    raise AssertionError(f"{path} makes no AnsibleModule")


def described(entry):
    """What a documented option says about type, default, choices and need."""
    kept = {k: v for k, v in entry.items() if k in ("type", "default", "choices", "required", "elements")}
    return {k: v for k, v in kept.items() if not (k == "required" and v is False)}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_the_options_of_a_module_are_those_in_its_documentation(path):
    documentation = yaml.safe_load(constants(path)["DOCUMENTATION"])
    spec = argument_spec(path)
    assert documentation["module"] == path.stem
    assert documentation["short_description"]
    assert {k: described(v) for k, v in documentation["options"].items()} == {k: described(v) for k, v in spec.items()}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_a_description_is_a_whole_sentence(path):
    # A comma in an unquoted text of a flow mapping ends it, and the rest becomes a key.
    texts = constants(path)
    entries = [*yaml.safe_load(texts["DOCUMENTATION"])["options"].items(), *yaml.safe_load(texts["RETURN"]).items()]
    keys = {"description", "type", "default", "choices", "required", "elements", "returned"}
    assert {name: sorted(set(entry) - keys) for name, entry in entries if set(entry) - keys} == {}
    assert [name for name, entry in entries if not str(entry["description"]).endswith(".")] == []


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_what_a_module_returns_is_described(path):
    returned = yaml.safe_load(constants(path)["RETURN"])
    assert returned
    assert all({"description", "type", "returned"} <= set(entry) for entry in returned.values())


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_the_example_of_a_module_uses_it_as_the_projects_own_tasks_do(path):
    example = yaml.safe_load(constants(path)["EXAMPLES"])
    name = f"modelyard.core.{path.stem}"
    called = [action(task) for task in example]
    assert [c[0] for c in called] == [name]
    shown = set(called[0][1])
    if path.stem in ACTIONS:  # the action plugin of the same name takes the task's arguments
        uses = [set(args) for _, task in TASKS for used, args in [action(task) or ("", {})] if used == name]
        assert shown <= set().union(*uses)
    else:
        assert {k for k, v in argument_spec(path).items() if v.get("required")} <= shown <= set(argument_spec(path))


@pytest.mark.parametrize(
    ("where", "name", "args"),
    [(w, *action(t)) for w, t in TASKS if (action(t) or ("",))[0].startswith("modelyard.core.")],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_task_gives_a_module_only_arguments_that_it_knows(where, name, args):
    short = name.split(".")[2]
    if short in ACTIONS:
        source = (worlds.PLUGINS / "action" / f"{short}.py").read_text(encoding="utf-8")
        module = worlds.PLUGINS / "modules" / f"{short}.py"
        known = set(argument_spec(module)) if module.is_file() else set()
        unknown = [a for a in args if a not in known and f'"{a}"' not in source]
    else:
        unknown = [a for a in args if a not in argument_spec(worlds.PLUGINS / "modules" / f"{short}.py")]
    assert unknown == []


def loaded(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", FILTERS, ids=lambda p: p.stem)
def test_a_filter_is_named_after_its_file_and_documented(path):
    module = loaded(path)
    filters = module.FilterModule().filters()
    documentation = yaml.safe_load(module.DOCUMENTATION)
    assert list(filters) == [path.stem]
    assert documentation["name"] == path.stem
    parameters = inspect.signature(filters[path.stem]).parameters
    assert set(documentation["options"]) - {"_input"} == set(list(parameters)[1:])
    assert "_input" in documentation["options"]
    assert set(yaml.safe_load(module.RETURN)) == {"_value"}
    assert re.search(rf"\|\s*{path.stem}\b", module.EXAMPLES)
    yaml.safe_load(module.EXAMPLES)


#: Readers of vendor tools and the memory plan, for other people's playbooks; ours call the functions below them.
ON_THEIR_OWN = {
    "nvidia_smi_gpus",
    "hy_smi_devices",
    "rocm_smi_devices",
    "modelyard_kv_bytes_per_token",
    "modelyard_memory_plan",
    "modelyard_triage",
}


@pytest.mark.parametrize("path", [p for p in FILTERS if p.stem not in ON_THEIR_OWN], ids=lambda p: p.stem)
def test_a_filter_is_used_somewhere(path):
    files = [p for folder in ("roles", "playbooks") for p in (worlds.ROOT / folder).rglob("*.yml")]
    texts = [p.read_text(encoding="utf-8") for p in files]
    assert any(re.search(rf"\|\s*{path.stem}\b", text) for text in texts)


SHIPPED = sorted(worlds.PLUGINS.glob("module_utils/**/*.py"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_module_utils_need_nothing_but_the_standard_library(path):
    # tables.py and versions.py are read on the control node only and say so; `packaging` comes with Ansible.
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module)
    foreign = {
        name
        for name in names
        if name.split(".")[0] not in sys.stdlib_module_names
        and not name.startswith("ansible_collections.modelyard.core.plugins.module_utils")
    }
    allowed = {"tables": {"yaml"}, "versions": {"packaging.specifiers", "packaging.version"}}
    assert foreign <= allowed.get(path.stem, set())


def test_what_goes_to_hosts_never_imports_the_tables():
    # Ansible ships Python files only: the data files are not there.
    graph = {}
    for path in [*SHIPPED, *MODULES]:
        imports = re.findall(
            r"^from ansible_collections\.modelyard\.core\.plugins\.module_utils\.?([a-z_.]*) import (.+)$",
            path.read_text(encoding="utf-8"),
            re.MULTILINE,
        )
        graph[path.stem if path in MODULES else f"{path.parent.name}.{path.stem}"] = {
            found
            for package, names in imports
            for name in re.findall(r"[a-z_]+", names)
            for found in ((f"{package}.{name}",) if "." not in package else (package,))
        }
    reached, queue = set(), [p.stem for p in MODULES]
    while queue:
        for name in graph.get(queue.pop(), ()):
            if name not in reached:
                reached.add(name)
                queue.append(name)
    assert "process.identity" in reached
    assert "plan.tables" not in reached
