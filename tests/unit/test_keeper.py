"""The keeper's files; what it does with processes is in tests/integration/test_stop.py."""

from __future__ import annotations

import ast
import importlib.util
import os
import sys

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import proc
from unit import worlds

PATH = worlds.ROOT / "roles/service/files/keeper.py"


@pytest.fixture(scope="module")
def keeper():
    spec = importlib.util.spec_from_file_location("keeper", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def start(keeper, folder):
    path, handle = keeper.open_log(folder)
    os.write(handle, path.name.encode())
    os.close(handle)
    return path


def test_each_start_has_a_log_of_its_own_and_current_points_to_it(keeper, tmp_path):
    paths = [start(keeper, tmp_path / "logs") for _ in range(5)]
    assert len(set(paths)) == 5
    assert (tmp_path / "logs/current.log").resolve() == paths[-1]
    assert [p.read_text() for p in paths] == [p.name for p in paths]


def test_old_logs_go_and_the_newest_stay_with_the_one_that_is_written(keeper, tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    for day in range(1, 31):
        (logs / f"202511{day:02d}T000000Z.log").write_text("old")
    path = start(keeper, logs)
    kept = sorted(p.name for p in logs.iterdir() if not p.is_symlink())
    assert len(kept) == 20
    assert path.name in kept
    assert kept[0] == "20251112T000000Z.log"


def test_many_starts_in_one_second_never_remove_the_log_that_is_being_written(keeper, tmp_path):
    for _ in range(60):
        assert start(keeper, tmp_path / "logs").is_file()


def test_the_start_time_is_the_one_that_the_survey_reads(keeper):
    assert keeper.start_ticks(os.getpid()) == proc.read(os.getpid()).start
    assert keeper.start_ticks(2**22 + 1) == 0


def test_the_state_is_written_whole(keeper, tmp_path):
    keeper.write_state(tmp_path / "state.json", {"b": 1})
    assert (tmp_path / "state.json").read_text() == '{\n "b": 1\n}\n'
    assert [p.name for p in tmp_path.iterdir()] == ["state.json"]


def test_it_needs_the_standard_library_alone_and_runs_on_old_pythons():
    tree = ast.parse(PATH.read_text(encoding="utf-8"), feature_version=(3, 6))
    names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    names |= {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert names <= set(sys.stdlib_module_names)
