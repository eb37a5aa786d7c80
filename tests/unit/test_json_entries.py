"""A file that is one JSON array, or objects over several lines: told from lines, and read entry by entry."""

from __future__ import annotations

import io
import json
import tracemalloc

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import prompts
from ansible_collections.modelyard.core.plugins.plugin_utils import json_entries
from hypothesis import given
from hypothesis import strategies as st

MOST = 2**20
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def read(text: bytes | str, most: int = MOST) -> list[bytes]:
    data = text.encode() if isinstance(text, str) else text
    found = list(json_entries.entries(io.BytesIO(data), most))
    assert sum(size for _, size in found) <= len(data)
    return [line for line, _ in found if line is not None]


@pytest.mark.parametrize(
    "text",
    [
        '[{"messages": []}, {"messages": []}]',
        '\ufeff [\n  {"text": "a"},\n  {"text": "b"}\n]\n',
        '["a", "b"]',
        "[12, 13]",
        "[12]\n",
        '[{"text": "' + "x" * json_entries.HEAD_BYTES,
        "[" + "1, " * json_entries.HEAD_BYTES,
        '{\n  "text": "a"\n}\n{\n  "text": "b"\n}\n',
        '{"messages": [\n' + " " * json_entries.HEAD_BYTES + "]}",
    ],
)
def test_what_is_json_as_a_whole(text):
    assert json_entries.is_one(text.encode()[: json_entries.HEAD_BYTES])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "a text\n[1, 2]\n",
        "[INST] an instruction [/INST]\n",
        "[1] a footnote, [2] another\n",
        '["a"] and more words\n',
        '{"text": "a"}\n{"text": "b"}\n',
        '{"text": "a"\n{"text": "b"}\n',
        '{"text": "a\n{"text": "b"}\n',
        '{"text": "' + "x" * json_entries.HEAD_BYTES,
        "12\n13\n",
        '"a"\n"b"\n',
    ],
)
def test_what_is_lines(text):
    assert not json_entries.is_one(text.encode()[: json_entries.HEAD_BYTES])


@given(st.lists(VALUES), st.sampled_from([None, 1]), st.sampled_from([5, 64]))
def test_every_entry_of_an_array_comes_out_whole_wherever_it_is_cut(values, indent, chunk):
    patched = pytest.MonkeyPatch()
    patched.setattr(json_entries, "CHUNK_BYTES", chunk)
    try:
        found = read(json.dumps(values, indent=indent))
    finally:
        patched.undo()
    assert all(line.count(b"\n") == 1 for line in found)
    for value, line in zip(values, found, strict=True):
        usable = isinstance(value, (dict, str, list)) or (type(value) is int and value >= 0)
        assert json.loads(line) == (value if usable else [])


def test_objects_over_several_lines_with_and_without_commas():
    values = [{"text": "a\nb"}, {"prompt": ["x"]}]
    for between in ("\n", ",\n"):
        assert [json.loads(line) for line in read(between.join(json.dumps(value, indent=2) for value in values))] == values


def test_bytes_that_are_no_text_are_damaged_on_the_host_and_hold_nothing_up():
    (bad, good) = read(b'[{"text": "\xff\xfe"}, {"text": "a"}]')
    with pytest.raises(prompts.Damaged, match="no UTF-8"):
        prompts.read(bad)
    assert [prompt.text for prompt in prompts.read(good)] == ["a"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[{"text": "a"}, {"text": "b', "the file ends within entry 2"),
        ('[{"text": "a"}, {"text": }, 3]', "entry 2 is no JSON"),
        ('[{"text": "a"} {"text": "b"}]', "after entry 1 there is neither a comma nor the end of the array"),
        ('[{"text": "a"}', "the array has no end after entry 1"),
        ("[1, 2]\n[3]", "after the end of the array, which has 2 entries, the file goes on"),
        ("[1, 2,]", "entry 3 is no JSON"),
        ("[" * 200_000, "entry 1 is no JSON"),
        ('["' + "x" * 3 * MOST + '"]', "entry 1 is longer than 1 MiB, or has no end"),
    ],
)
def test_where_it_breaks_off_is_said_without_a_word_of_it(text, words):
    with pytest.raises(json_entries.Broken) as said:
        read(text)
    assert str(said.value) == words


def test_memory_does_not_grow_with_the_array():
    class Endless(io.RawIOBase):
        """An array of 64 MiB that is nowhere whole."""

        left = 64

        def read(self, size: int = -1) -> bytes:
            self.left -= 1
            entries = (b"x" * 2044 + b'", "') * 512
            return (b'["' if self.left == 63 else b"") + entries if self.left > 0 else b'x"]' * (self.left == 0)

        def tell(self) -> int:
            return (64 - self.left) * 2**20

    tracemalloc.start()
    count = sum(1 for _ in json_entries.entries(Endless(), MOST))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 63 * 512 + 1
    assert peak < 16 * 2**20
