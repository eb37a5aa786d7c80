"""The tool that reads which architectures a release serves, and the table that it has made."""

from __future__ import annotations

import importlib
import sys

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import tables
from unit import worlds

REGISTRY = """
_TEXT: dict = {"A": ("a", "A"), "B": ("b", "B")}
_MORE = {"C": ("c", "C")}
_VLLM_MODELS = {**_TEXT, **_MORE, "D": ("d", "D")}
_PREVIOUSLY_SUPPORTED_MODELS = {"B": "0.9.2"}
"""


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(worlds.ROOT / "tools"))
    yield importlib.import_module("vllm_architectures")
    for name in ("vllm_architectures", "vllm_options", "vllm_parser"):
        sys.modules.pop(name, None)


def test_tables_of_tables_are_read_and_what_is_refused_by_name_is_gone(tool):
    assert tool.architectures(REGISTRY) == {"A": "there", "C": "there", "D": "there"}


def test_a_release_that_keeps_them_elsewhere_is_refused_and_not_read_by_half(tool):
    with pytest.raises(SystemExit, match="_VLLM_MODELS"):
        tool.architectures("x = 1")


def test_a_release_is_added_from_a_folder_and_the_table_is_written_a_line_each(tool, tmp_path):
    for release, text in (("0.1.0", REGISTRY), ("0.2.0", REGISTRY.replace('"A"', '"E"'))):
        place = tmp_path / release / tool.REGISTRY
        place.parent.mkdir(parents=True)
        place.write_text(text, encoding="utf-8")
    table = {"releases": {}, "architectures": {}}
    for release in ("0.2.0", "0.1.0"):
        table = tool.with_source(table, f"{release}={tmp_path / release}")
    assert table["architectures"]["A"] == {"0.1.0": "there", "0.2.0": "gone"}
    assert table["architectures"]["E"] == {"0.2.0": "there"}
    lines = tool.written(table).splitlines()
    assert '  A: {"0.1.0": there, "0.2.0": gone}' in lines


def test_the_table_is_as_the_tool_writes_it(tool):
    assert tool.written(tables.architectures()) == tool.TABLE.read_text(encoding="utf-8")


def test_the_release_of_our_own_runtime_was_read(tool):
    table = tables.architectures()
    assert {tables.backend(name)["vllm_release"] for name in tables.backends()} <= set(table["releases"])
    assert len(table["architectures"]) > 300
