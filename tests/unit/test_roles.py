"""What linters do not see in roles and playbooks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from unit import worlds
from unit.tasks import PLAYBOOKS, SHARED, TASKS, action, load

ROLES = sorted(p.name for p in (worlds.ROOT / "roles").iterdir() if (p / "tasks").is_dir())
OURS = sorted(p.stem for p in worlds.PLUGINS.glob("modules/*.py"))
ACTIONS = sorted(p.stem for p in worlds.PLUGINS.glob("action/*.py"))
SECRET = re.compile(r"api_key|password|secret|token", re.IGNORECASE)


def options(role):
    return load(worlds.ROOT / "roles" / role / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]


def entries(spec, where=""):
    """Every option of a spec at every depth: (place, entry)."""
    for name, entry in spec.items():
        yield f"{where}{name}", entry
        yield from entries(entry.get("options", {}), f"{where}{name}.")


def test_there_is_something_to_look_at():
    assert {"survey", "plan", "preflight", "runtime", "model", "service", "acceptance", "teardown"} <= set(ROLES)
    wanted = {f"{name}.yml" for name in ("deploy", "preflight", "acceptance", "teardown", "recover", "status", "requests")}
    wanted |= {"context_fit.yml", "diagnose.yml", "memory.yml", "models.yml"}
    assert wanted <= {p.name for p in PLAYBOOKS}
    assert len(TASKS) > 30


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_a_spec_whose_options_are_its_defaults(role):
    spec = options(role)
    defaults = load(worlds.ROOT / "roles" / role / "defaults/main.yml") or {}
    if role == "plan":
        # The inventory's language: the action `intent` fills in the defaults, at every depth, from the spec itself.
        assert defaults == {}
        assert all("default" in entry for entry in spec.values())
        return
    assert sorted(defaults) == sorted(spec)
    assert {name: entry.get("default") for name, entry in spec.items()} == defaults


@pytest.mark.parametrize("role", ROLES)
def test_an_input_is_named_after_its_role(role):
    prefix = "modelyard_" if role == "plan" else f"{role}_"
    assert [name for name in options(role) if not name.startswith(prefix)] == []


@pytest.mark.parametrize("role", ROLES)
def test_every_option_is_described_and_typed_and_has_a_default_or_is_required(role):
    for where, entry in entries(options(role)):
        assert str(entry.get("description", "")).rstrip().endswith("."), where
        assert entry.get("type") in ("str", "int", "float", "bool", "list", "dict", "raw"), where
        assert ("default" in entry) is not bool(entry.get("required")), where
        if entry["type"] == "list":
            assert "elements" in entry, where


@pytest.mark.parametrize("role", ROLES)
def test_internal_variables_are_marked_with_their_role(role):
    internal = load(worlds.ROOT / "roles" / role / "vars/main.yml") or {}
    assert [name for name in internal if not name.startswith(f"__{role}_")] == []


@pytest.mark.parametrize("role", ROLES)
def test_a_role_uses_no_internal_variable_of_another(role):
    text = "\n".join(p.read_text(encoding="utf-8") for p in sorted((worlds.ROOT / "roles" / role).rglob("*.yml")))
    others = {name for name in re.findall(r"\b__([a-z]+)_[a-z_]+", text) if name in ROLES and name != role}
    assert others == set()


@pytest.mark.parametrize("role", ROLES)
def test_task_names_of_a_role_are_unique_so_that_a_log_line_finds_its_source(role):
    names = [t["name"] for where, t in TASKS if where.startswith(f"roles/{role}/") and action(t)]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_every_task_and_play_has_a_name_that_begins_with_an_imperative():
    named = [*TASKS, *((p.name, play) for p in PLAYBOOKS for play in load(p))]
    wrong = [
        (where, task.get("name"))
        for where, task in named
        if not re.match(r"[A-Z][a-z]*(?<!ing)(?<!ed)([ ,]|$)", str(task.get("name", "")))
        or re.match(r"(The|A|An|This|Set|Check|Ensure|Task) ", str(task["name"]))
        if "block" not in task or "name" in task
    ]
    assert wrong == []


def test_the_variable_part_of_a_task_name_stands_at_its_end():
    assert [t["name"] for _, t in TASKS if re.search(r"\}\}\s*\S", str(t.get("name", "")))] == []


def test_every_task_calls_one_module_by_its_full_name():
    wrong = []
    for where, task in TASKS:
        if "block" in task:
            continue
        called = action(task)
        if called is None or called[0].count(".") != 2:
            wrong.append((where, task["name"]))
        elif called[0].startswith("modelyard.core.") and called[0].split(".")[2] not in {*OURS, *ACTIONS}:
            wrong.append((where, called[0]))
    assert wrong == []


def test_a_command_says_what_it_makes_or_whether_it_changes():
    wrong = []
    for where, task in TASKS:
        name, args = action(task) or ("", {})
        if name.rpartition(".")[2] not in ("command", "script", "shell", "raw"):
            continue
        assert isinstance(args, dict), (where, "no free form")
        if not {"creates", "removes"} & set(args) and "changed_when" not in task:
            wrong.append((where, task["name"]))
    assert wrong == []


def test_no_task_goes_through_a_shell_or_hides_an_error():
    for where, task in TASKS:
        called = (action(task) or ("",))[0]
        assert called not in ("ansible.builtin.shell", "ansible.builtin.raw"), where
        assert "ignore_errors" not in task, where


def test_a_task_that_writes_a_secret_shows_neither_output_nor_diff():
    writing = {"copy", "template", "lineinfile", "blockinfile", "set_fact"}
    writers = [
        (where, task)
        for where, task in TASKS
        if (action(task) or ("",))[0].rpartition(".")[2] in writing and SECRET.search(json.dumps(action(task)[1]))
    ]
    assert [task["name"] for _, task in writers] == ["Write the API keys"]
    for where, task in writers:
        assert task.get("no_log") in (True, "{{ service_secure_logging }}"), where
        assert task.get("diff") is False, where
        assert action(task)[1]["mode"] == "0600", where
        assert not SECRET.search(task["loop_control"]["label"]), where
    assert options("service")["service_secure_logging"]["default"] is True


def test_the_keys_are_read_by_that_task_alone():
    texts = [(t.get("name"), json.dumps({k: v for k, v in t.items() if k != "block"})) for _, t in TASKS]
    users = [name for name, text in texts if "modelyard_api_keys" in text]
    assert users == ["Write the API keys"]


def test_files_have_a_mode_and_scripts_are_checked_before_they_are_put_in_place():
    for where, task in TASKS:
        name, args = action(task) or ("", {})
        if name in ("ansible.builtin.copy", "ansible.builtin.template"):
            assert re.fullmatch(r"0[0-7]{3}", args.get("mode", "")), (where, task["name"])
        if name == "ansible.builtin.template" and args["src"].endswith(".sh.j2"):
            assert args["validate"] == "bash -n %s", (where, task["name"])


def test_loops_name_their_variable_after_the_role():
    for where, task in TASKS:
        if "loop" in task and where.startswith("roles/"):
            assert task["loop_control"]["loop_var"].startswith(where.split("/")[1] + "_"), (where, task["name"])


def test_templates_quote_what_comes_from_an_inventory():
    unquoted = []
    # These have no quotes of a shell; module_utils/gateway/control.py refuses what would not stay one word in them.
    other = (".cfg.j2", ".conf.j2", ".json.j2", "_macros.j2")
    for file in sorted(worlds.ROOT.glob("roles/*/templates/*.j2")):
        if file.name.endswith(other):
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if not line.startswith("#"):
                values = re.findall(r"\{\{(.*?)\}\}", line)
                plain = [v for v in values if not re.search(r"\|\s*(quote|comment)\s*$|^ '.*' if ", v)]
                unquoted += [(file.name, number, v.strip()) for v in plain]
    # The name of a variable cannot be quoted; it is checked when the inventory is read.
    assert [u for u in unquoted if u[2] != "name"] == []


@pytest.mark.parametrize("file", PLAYBOOKS, ids=lambda p: p.name)
def test_a_playbook_begins_with_its_purpose_and_a_line_to_copy(file):
    head = re.match(r"---\n((?:#.*\n)+)", file.read_text(encoding="utf-8"))
    assert head, "a comment stands first"
    assert f"ansible-playbook -i inventory/demo playbooks/{file.name}" in head.group(1)


@pytest.mark.parametrize("file", PLAYBOOKS, ids=lambda p: p.name)
def test_playbooks_know_groups_only_through_a_variable_and_gather_no_facts(file):
    for play in load(file):
        # A schedule is of the control node, whatever the inventory's hosts are.
        assert play["hosts"] == ("localhost" if file.name == "schedule.yml" else "{{ modelyard_hosts | default('all') }}")
        assert play["gather_facts"] is False


def listed(file):
    """The lists of tasks of a playbook, or of a file that playbooks share."""
    return [load(file)] if file in SHARED else [play["tasks"] for play in load(file)]


@pytest.mark.parametrize("file", [*PLAYBOOKS, *SHARED], ids=lambda p: p.name)
def test_a_playbook_that_takes_the_lock_gives_it_back_in_any_case(file):
    for tasks in listed(file):
        for task in tasks:
            text = json.dumps(task.get("block", []))
            if "modelyard.core.deploy_lock" in text:
                always = task["always"]
                assert [(action(t)[0], action(t)[1].get("state")) for t in always] == [
                    ("modelyard.core.deploy_lock", "released"),
                ]
                assert action(task["block"][0])[0] == "modelyard.core.deploy_lock"
            else:
                assert "modelyard.core.deploy_lock" not in json.dumps(task)


def test_a_playbook_that_changes_a_host_takes_the_lock():
    changing = {"runtime", "model", "service", "teardown", "nvidia_driver", "cuda_toolkit"}
    for file in [*PLAYBOOKS, *SHARED]:
        text = file.read_text(encoding="utf-8")
        if changing & set(re.findall(r"^\s+name: ([a-z_]+)$", text, re.MULTILINE)):
            assert "modelyard.core.deploy_lock" in text, file.name


def test_the_inventories_of_the_project_use_only_keys_that_exist():
    known = options("plan")["modelyard_services"]["options"]
    for file in sorted(worlds.ROOT.glob("inventory/*/group_vars/*.yml")):
        for service in load(file).get("modelyard_services", []):
            assert set(service) <= set(known), file
            assert {"name", "model"} <= set(service), file


def test_the_files_that_roles_name_are_there():
    for where, task in TASKS:
        name, args = action(task) or ("", {})
        if name in ("ansible.builtin.copy", "ansible.builtin.template") and "src" in args and "{{" not in args["src"]:
            folder = "templates" if name.endswith("template") else "files"
            assert (Path(worlds.ROOT, where).parent.parent / folder / args["src"]).is_file(), where
