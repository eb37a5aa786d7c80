"""The configuration of the gateway."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from modelyard_gateway import settings

BACKENDS = [{"name": "qwen/0", "url": "http://127.0.0.1:8002"}, {"url": "http://[::1]:8003"}]


def mistakes_of(given_settings):
    with pytest.raises(settings.SettingsError) as caught:
        settings.read(given_settings)
    return caught.value.mistakes


def test_backends_alone_are_enough():
    found = settings.read({"backends": BACKENDS})
    assert found.port == 8000 and found.timeout_s == 300 and found.log.keep == 3
    assert found.backends[0] == settings.BackendSettings("qwen/0", "127.0.0.1", 8002)
    assert (found.backends[1].name, found.backends[1].host) == ("[::1]:8003", "::1")


def test_all_mistakes_come_together_with_their_places():
    found = mistakes_of(
        {
            "port": "8000",
            "timeout": 3,
            "timeout_s": True,
            "health": {"failures": 0, "every": 1},
            "log": [],
            "backends": [{"url": "https://a:1"}, {"url": "http://a:1", "name": "a b"}, {"name": "x"}, 7],
        }
    )
    places = [line.split(":")[0] for line in found]
    wanted = ["port", "timeout", "timeout_s", "health.failures", "health.every", "log"]
    wanted += ["backends[0].url", "backends[1].name", "backends[2].url", "backends[3]"]
    assert sorted(places) == sorted(wanted)


@pytest.mark.parametrize(
    ("given_settings", "place"),
    [
        ({"backends": []}, "backends"),
        ({}, "backends"),
        ({"backends": [*BACKENDS, {"name": "qwen/0", "url": "http://127.0.0.1:9"}]}, "backends[2].name"),
        ({"backends": [*BACKENDS, {"name": "z", "url": "http://127.0.0.1:8002/"}]}, "backends[2].url"),
        ({"backends": [{"url": "http://127.0.0.1:99999"}]}, "backends[0].url"),
        ({"backends": [{"url": "http://127.0.0.1:1", "drained": 1}]}, "backends[0].drained"),
        ({"backends": BACKENDS, "admin": {"host": "0.0.0.0", "port": 8001}}, "admin.token_file"),
        ({"backends": BACKENDS, "admin": {"port": 8000}}, "admin.port"),
        ({"backends": BACKENDS, "queue_size": 5}, "queue_size"),
    ],
)
def test_a_single_mistake(given_settings, place):
    (found,) = mistakes_of(given_settings)
    assert found.startswith(f"{place}:")


def test_arguments_go_over_the_file(tmp_path):
    file = tmp_path / "gateway.json"
    file.write_text(json.dumps({"port": 1234, "log": {"path": "a", "keep": 2}, "backends": BACKENDS}))
    found = settings.load(str(file), {"port": 8009, "log": {"path": "b"}})
    assert (found.port, found.log.path, found.log.keep) == (8009, "b", 2)


@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_a_file_that_is_no_configuration(tmp_path, text):
    file = tmp_path / "gateway.json"
    file.write_text(text)
    with pytest.raises(settings.SettingsError, match=r"gateway\.json"):
        settings.load(str(file))
    with pytest.raises(settings.SettingsError, match="cannot be read"):
        settings.load(str(tmp_path / "nowhere"))


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*settings.Settings.__dataclass_fields__, "x"]), PLAIN))
def test_whatever_stands_there_is_taken_or_refused(given_settings):
    try:
        found = settings.read(given_settings)
    except settings.SettingsError as error:
        assert error.mistakes
    else:
        assert found.backends
