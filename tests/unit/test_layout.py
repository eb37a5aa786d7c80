from __future__ import annotations

import json

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import layout


def test_folders_lie_where_the_design_says():
    assert str(layout.service_dir("/opt/modelyard", "tiny")) == "/opt/modelyard/services/tiny"
    assert str(layout.instance_dir("/opt/modelyard", "tiny", 3)) == "/opt/modelyard/services/tiny/instance-3"


@pytest.mark.parametrize("content", [None, "", "{", "[1]", '"text"', "null", "\xff"])
def test_what_is_no_whole_object_reads_as_none(tmp_path, content):
    if content is not None:
        (tmp_path / "a.json").write_bytes(content.encode("latin-1"))
    assert layout.read_json(tmp_path / "a.json") is None


def test_what_is_written_can_be_read_by_all_and_leaves_nothing_beside_it(tmp_path):
    file = tmp_path / "a.json"
    layout.write_json(file, {"b": 1})
    layout.write_json(file, {"b": 2})
    assert layout.read_json(file) == {"b": 2}
    assert file.stat().st_mode & 0o777 == 0o644
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_what_cannot_be_written_leaves_the_old_file_whole(tmp_path):
    file = tmp_path / "a.json"
    layout.write_json(file, {"b": 1})
    with pytest.raises(TypeError):
        layout.write_json(file, {"b": object()})
    assert json.loads(file.read_text()) == {"b": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_instances_are_folders_with_a_number_in_the_order_of_it(tmp_path):
    base = tmp_path / "services/tiny"
    for name in ("instance-10", "instance-2", "instance-x", "instance-", "other-1"):
        (base / name).mkdir(parents=True)
    assert [(i, p.name) for i, p in layout.instances(str(tmp_path), "tiny")] == [(2, "instance-2"), (10, "instance-10")]


def test_services_are_folders_and_a_new_home_has_none(tmp_path):
    assert layout.services(str(tmp_path)) == []
    (tmp_path / "services/b").mkdir(parents=True)
    (tmp_path / "services/a").mkdir()
    (tmp_path / "services/file").write_text("")
    assert layout.services(str(tmp_path)) == ["a", "b"]


def test_an_instance_that_never_started_has_no_state(tmp_path):
    assert layout.state(tmp_path) is None
