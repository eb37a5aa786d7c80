"""The module that writes manifests, run for real on a home of its own."""

from __future__ import annotations

import errno
import json

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.modelyard.core.plugins.module_utils.plan import manifest, planner
from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.modules import manifest_write
from unit import worlds

STAMP = {"by": "ann", "from": "control", "playbook": "deploy.yml"}


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "services/tiny-qwen3/instance-0"
    folder.mkdir(parents=True)
    (folder / "launch.sh").write_text("exec vllm\n")
    return tmp_path


@pytest.fixture
def write(home, capsys):
    """Runs the module; its answer, with `rc`."""

    def run(check=False, **changes):
        plan = planner.plan(worlds.intent(worlds.service(**changes)), worlds.survey())
        known = manifest.manifest(plan["services"][0], plan, worlds.survey(), "0.2.0")
        args = {"home": str(home), "manifest": known, "deployed": STAMP, "_ansible_check_mode": check}
        with patch_module_args(args), pytest.raises(SystemExit) as ended:
            manifest_write.main()
        return {"rc": ended.value.code, **json.loads(capsys.readouterr().out)}

    return run


def held(home):
    return json.loads((home / "services/tiny-qwen3/manifest.json").read_text())


def test_it_is_written_once_and_stays_as_it_is_when_nothing_has_changed(home, write):
    assert write()["changed"] is True
    before = (home / "services/tiny-qwen3/manifest.json").read_bytes()
    assert manifest.problems(held(home)) == []
    assert {**held(home)["deployed"], **STAMP} == held(home)["deployed"]
    answer = write()
    assert answer["changed"] is False
    assert "diff" not in answer
    assert (home / "services/tiny-qwen3/manifest.json").read_bytes() == before


def test_a_diff_shows_what_has_changed_and_not_who_and_when(write):
    write()
    diff = write(engine={"max_model_len": 8192})["diff"]
    changed = set(diff["after"].splitlines()) ^ set(diff["before"].splitlines())
    assert any("8192" in line for line in changed)
    assert "ann" not in diff["after"]
    assert "deployed" not in diff["after"]


def test_check_mode_tells_the_truth_and_writes_nothing(home, write):
    assert write(check=True)["changed"] is True
    assert not (home / "services/tiny-qwen3/manifest.json").exists()
    write()
    assert write(check=True)["changed"] is False
    assert write(check=True, engine={"max_model_len": 8192})["changed"] is True
    assert held(home)["engine"] == {"max_model_len": 4096}


def test_a_file_that_is_rendered_otherwise_makes_another_manifest(home, write):
    write()
    (home / "services/tiny-qwen3/instance-0/launch.sh").write_text("exec vllm serve\n")
    assert write(check=True)["changed"] is False, "in check mode nothing was rendered"
    assert write()["changed"] is True


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"schema": 1, "name": "tiny-qwen3"}'])
def test_what_is_no_manifest_is_replaced(home, write, content):
    (home / "services/tiny-qwen3/manifest.json").write_text(content)
    assert write()["changed"] is True
    assert manifest.problems(held(home)) == []


def test_a_full_disk_is_said_and_leaves_the_old_one_whole(home, write, monkeypatch):
    write()
    before = held(home)

    def full(path, data, mode=0o644):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(layout, "write_json", full)
    answer = write(engine={"max_model_len": 8192})
    assert answer["rc"] == 1
    assert "No space left on device. The old one is as it was; run again." in answer["msg"]
    assert held(home) == before


def test_no_answer_gives_the_whole_manifest_back(write):
    assert "argv" not in json.dumps({k: v for k, v in write().items() if k != "diff"})
