from __future__ import annotations

import json

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

TEXT = "{a: text, b: 4, c: 1.5, d: true, e: null, f: [x, {g: 1}], 7: seven}"


def types(value):
    """Every type in a nested value."""
    if isinstance(value, dict):
        return {type(value)} | {t for item in value.items() for part in item for t in types(part)}
    if isinstance(value, list):
        return {type(value)} | {t for part in value for t in types(part)}
    return {type(value)}


def test_what_ansible_loads_becomes_plain_python():
    loaded = DataLoader().load(TEXT)
    assert types(loaded) - {str, int, float, bool, type(None), list, dict}, "Ansible's values are expected to be tagged"
    assert types(plain(loaded)) == {str, int, float, bool, type(None), list, dict}
    assert plain(loaded) == {"a": "text", "b": 4, "c": 1.5, "d": True, "e": None, "f": ["x", {"g": 1}], "7": "seven"}


@pytest.mark.parametrize("value", ["", "text", 0, 1.5, True, None, [], {}, [["a"]], {"a": {"b": ["c"]}}])
def test_plain_values_stay_as_they_are(value):
    assert plain(value) == value
    assert json.dumps(plain(value)) == json.dumps(value)


def test_the_copy_does_not_share_its_parts():
    value = {"a": [1]}
    plain(value)["a"].append(2)
    assert value == {"a": [1]}


def test_other_sequences_become_lists_and_text_stays_whole():
    assert plain(("a", ("b",))) == ["a", ["b"]]
    assert plain("abc") == "abc"
