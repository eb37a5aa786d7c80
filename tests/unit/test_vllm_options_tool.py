"""tools/vllm_options.py: reading an archive's syntax trees, and putting a release into the table."""

from __future__ import annotations

import importlib.util
import io
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

TOOLS = Path(__file__).parents[2] / "tools"
CONFIG = """
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Optional, Union
from pydantic import Field, SkipValidation
from vllm.config.inner import Inner, Sizes
Dtype = Literal["auto", "half"]
MaybeList = Optional[list[str]]

@dataclass
class Base:
    based: bool = False

@config
class ModelConfig(Base):
    name_text: str = "x"
    dtype: Dtype = "auto"
    number: int | None = Field(default=7, ge=1)
    ratio: SkipValidation[float] = 0.9
    on: bool | None = None
    token: bool | str | None = None
    many: MaybeList = None
    pair: tuple[int, int] = (1, 2)
    sizes: Sizes = field(default_factory=list)
    one_of: "list[str] | Dtype" = "auto"
    inner: Union[bool, Inner] = False
    annotated: Annotated[bool, "why"] = True
    hidden: ClassVar[bool] = True
"""
INNER = """
if TYPE_CHECKING:
    Sizes = str
else:
    Sizes = list[int]

@dataclass
class Inner:
    a: int = 1
"""
ENGINE = """
from vllm.config.model import ModelConfig
from vllm.config import nothing

def get_kwargs(cls):
    if type_hints == {bool, str, type(None)}:
        pass

class EngineArgs:
    @staticmethod
    def add_cli_args(parser):
        model_kwargs = get_kwargs(ModelConfig)
        group = parser.add_argument_group(title="x")
        if not ("serve" in sys.argv):
            group.add_argument("--name-text", **model_kwargs["name_text"])
        group.add_argument("--dtype", "-d", **model_kwargs["dtype"])
        group.add_argument("--number", **{**model_kwargs["number"], "default": None})
        group.add_argument("--ratio", **model_kwargs["ratio"])
        group.add_argument("--based", **model_kwargs["based"])
        group.add_argument("--on", **model_kwargs["on"])
        group.add_argument("--token", **model_kwargs["token"])
        group.add_argument("--many", **model_kwargs["many"])
        group.add_argument("--pair", **model_kwargs["pair"])
        group.add_argument("--sizes", **model_kwargs["sizes"])
        group.add_argument("--one-of", **model_kwargs["one_of"])
        group.add_argument("--inner", **model_kwargs["inner"])
        group.add_argument("--annotated", **model_kwargs["annotated"])
        kept = model_kwargs["many"]
        group.add_argument("--kept", **kept)
        single = get_kwargs(ModelConfig)["on"]
        single["default"] = argparse.SUPPRESS
        group.add_argument("--single", **single)
        for arg, type in [("--old-a", str), ("--old-b", bool)]:
            group.add_argument(arg, type=type, deprecated=True)
        return parser

class AsyncEngineArgs(EngineArgs):
    @staticmethod
    def add_cli_args(parser):
        parser = EngineArgs.add_cli_args(parser)
        parser.add_argument("--log-requests", action=argparse.BooleanOptionalAction, default=False)
        return parser
"""
SERVER = """
@config
class BaseFrontendArgs:
    origins: list[str] = field(default_factory=lambda: ["*"])
    modules: list[str] | None = None

    @classmethod
    def _customize_cli_kwargs(cls, frontend_kwargs):
        frontend_kwargs["modules"]["action"] = ParserAction
        return frontend_kwargs

    @classmethod
    def add_cli_args(cls, parser):
        frontend_kwargs = get_kwargs(cls)
        frontend_kwargs = cls._customize_cli_kwargs(frontend_kwargs)
        group = parser.add_argument_group(title="Frontend")
        for key, value in frontend_kwargs.items():
            extra = value.pop("flags", [])
            group.add_argument(f"--{key.replace('_', '-')}", *extra, **value)
        return parser

@config
class FrontendArgs(BaseFrontendArgs):
    middleware: list[str] = field(default_factory=lambda: [])

    @classmethod
    def _customize_cli_kwargs(cls, frontend_kwargs):
        frontend_kwargs = super()._customize_cli_kwargs(frontend_kwargs)
        del frontend_kwargs["origins"]["nargs"]
        frontend_kwargs["middleware"]["action"] = "append"
        if "nargs" in frontend_kwargs["middleware"]:
            del frontend_kwargs["middleware"]["nargs"]
        return frontend_kwargs

class OtherArgs(BaseFrontendArgs):
    unrelated: str = ""

def make_arg_parser(parser):
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--headless", action="store_true", default=False)
    parser.add_argument("--config", help="a file")
    parser.add_argument("--loras", nargs="*", action=ParserAction)
    parser = FrontendArgs.add_cli_args(parser)
    return AsyncEngineArgs.add_cli_args(parser)
"""
FILES = {
    "vllm/config/model.py": CONFIG,
    "vllm/config/inner.py": INNER,
    "vllm/engine/arg_utils.py": ENGINE,
    "vllm/entrypoints/openai/cli_args.py": SERVER,
    "vllm/entrypoints/cli/serve.py": "",
}
KINDS = {
    **dict.fromkeys(["name_text", "dtype", "number", "ratio", "token", "one_of", "inner", "old_a", "old_b", "config"], "value"),
    **dict.fromkeys(["based", "on", "annotated", "single", "log_requests"], "switch"),
    **dict.fromkeys(["many", "kept", "pair", "sizes", "modules", "loras"], "list"),
    "origins": "value",
    "middleware": "repeat",
    "headless": "flag",
}


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    spec = importlib.util.spec_from_file_location("vllm_options_tool", TOOLS / "vllm_options.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    for name in ("vllm_parser", "vllm_source"):
        sys.modules.pop(name, None)


def source_archive(folder, release, files=FILES):
    path = folder / f"vllm-{release}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"vllm-{release}/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def test_every_way_to_add_an_option_is_read(tool, tmp_path):
    release, options = tool.read(source_archive(tmp_path, "0.40.0"))
    assert release == "0.40.0"
    assert {option.name: option.kind for option in options} == KINDS


def test_a_wheel_is_read_as_well_where_a_release_has_no_source_archive(tool, tmp_path):
    path = tmp_path / "vllm-0.15.1-cp38-abi3-manylinux_2_31_x86_64.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in FILES.items():
            wheel.writestr(name, text)
    release, options = tool.read(path)
    assert release == "0.15.1"
    assert {option.name: option.kind for option in options} == KINDS


@pytest.mark.parametrize("name", ["vllm.tar.gz", "other-0.1.tar.gz", "v0.32.0.tar.gz"])
def test_an_archive_that_does_not_tell_its_release_is_refused(tool, tmp_path, name):
    with pytest.raises(SystemExit, match=r"expected vllm-RELEASE\.tar\.gz or a wheel"):
        tool.read(source_archive(tmp_path, "0.40.0").rename(tmp_path / name))


def test_a_release_that_keeps_its_options_elsewhere_is_refused_and_not_read_by_half(tool, tmp_path):
    files = {name: text for name, text in FILES.items() if "openai" not in name}
    with pytest.raises(SystemExit, match="add where this release keeps it"):
        tool.read(source_archive(tmp_path, "0.40.0", files))


def test_a_class_that_is_not_found_is_said(tool, tmp_path):
    files = {**FILES, "vllm/engine/arg_utils.py": ENGINE.replace("from vllm.config.model import ModelConfig", "")}
    with pytest.raises(SystemExit, match="there is no class ModelConfig"):
        tool.read(source_archive(tmp_path, "0.40.0", files))


def test_a_release_is_put_between_those_that_are_known(tool):
    table = {"releases": {}, "options": {}}
    shown = {}
    for release, options in (
        ("0.10.0", {"a": "switch", "b": "value"}),
        ("0.8.5", {"a": "flag"}),
        ("0.12.0", {"b": "value", "c": "list"}),
        ("0.9.0", {"a": "switch", "c": "list"}),
    ):
        shown[release] = options
        table = tool.added(table, release, "0" * 64, options)
        for known, expected in shown.items():
            kinds = {name: tool.at(history, known) for name, history in table["options"].items()}
            assert {name: kind for name, kind in kinds.items() if kind != "gone"} == expected
    assert list(table["releases"]) == ["0.8.5", "0.9.0", "0.10.0", "0.12.0"]
    assert table["options"] == {
        "a": {"0.8.5": "flag", "0.9.0": "switch", "0.12.0": "gone"},
        "b": {"0.10.0": "value"},
        "c": {"0.9.0": "list", "0.10.0": "gone", "0.12.0": "list"},
    }


def test_reading_a_release_again_changes_nothing(tool):
    table = yaml.safe_load(tool.TABLE.read_text(encoding="utf-8"))
    assert tool.written(table) == tool.TABLE.read_text(encoding="utf-8")
    for release in list(table["releases"])[::7]:
        options = {name: tool.at(history, release) for name, history in table["options"].items()}
        there = {name: kind for name, kind in options.items() if kind != "gone"}
        assert tool.added(table, release, table["releases"][release], there) == table


def test_a_difference_between_table_and_parser_is_told(tool):
    table = {"releases": {"0.8.5": "0" * 64}, "options": {"a": {"0.8.5": "flag"}, "b": {"0.8.5": "value"}}}
    assert tool.compared(table, "0.8.5", {"a": "flag", "b": "value"}) == []
    assert tool.compared(table, "0.8.5", {"a": "switch", "c": "list"}) == [
        "a: flag in the table, switch in the parser",
        "b: value in the table, gone in the parser",
        "c: gone in the table, list in the parser",
    ]
    assert tool.compared(table, "0.9.0", {}) == ["the table does not know 0.9.0"]


def test_changed_defaults_are_found(tool, tmp_path):
    files = {**FILES, "vllm/config/model.py": CONFIG.replace("= 0.9", "= 0.92").replace('["*"]', "[]")}
    before = tool.read(source_archive(tmp_path, "0.40.0"))[1]
    after = tool.read(source_archive(tmp_path, "0.41.0", files))[1]
    assert tool.changed_defaults(before, after) == ["ratio: 0.9 -> 0.92"]
    assert tool.changed_defaults(before, before) == []
