"""Asking again and again until a model is there: what is shown, what is given up on, and what is refused beforehand."""

from __future__ import annotations

import hashlib

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process.staging import fetch, place, serve
from ansible_collections.modelyard.core.plugins.plugin_utils import staging
from hub import Hub
from unit.test_staging import FILES, HOLDER, NEEDED, hugging, lies, mirrored, source


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def hub():
    made = Hub(dict(FILES))
    yield made
    made.close()


def side(path, wanted, token="", **changes):
    pauses = []
    base = staging.Side(serve.answer, str(path), wanted, token, HOLDER, lambda _: False, pauses.append)
    return base._replace(**changes), pauses


def staged(path, wanted, **changes):
    lines = []
    one, pauses = side(path, wanted, **changes)
    told = staging.bring(one, staging.offer(one), lines.append)
    return told, lines, pauses


def refused(path, wanted, **changes):
    with pytest.raises((staging.Refused, serve.Failed)) as found:
        staged(path, wanted, **changes)
    return str(found.value)


def test_what_is_shown_and_what_comes_out(hub, tmp_path):
    told, lines, pauses = staged(tmp_path / "m", hugging(hub))
    assert lies(tmp_path / "m") and told.files == 6 and told.fetched == sum(len(FILES[n]) for n in NEEDED | {"README.md"})
    assert lines == ["  [   0 s] m: 6 of 6 files, 500 KiB of 500 KiB"] and pauses == [] and told.notes == []
    assert place.staging(tmp_path / "m") is None
    again, _, _ = staged(tmp_path / "m", hugging(hub))
    assert again.fetched == 0


def test_a_long_one_shows_rate_and_time_left(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(serve, "BUDGET_S", 0.4)
    monkeypatch.setattr(staging, "SHOW_S", 0.0)
    hub.faults = {"model.safetensors": ["slow", "slow", "slow", None]}
    _, lines, _ = staged(tmp_path / "m", hugging(hub))
    assert lies(tmp_path / "m")
    assert any("KiB/s, about" in line and line.endswith("left (model.safetensors)") for line in lines), lines


def test_a_busy_hub_is_waited_for_and_given_up_on_after_a_while(hub, tmp_path):
    hub.faults = {"config.json": [429, 429, 503]}
    words = refused(tmp_path / "m", hugging(hub))
    assert "HTTP 503" in words and words.endswith("(6 times); what is there stays: run again")
    hub.faults = {"config.json": [429, 429]}
    told, lines, pauses = staged(tmp_path / "m", hugging(hub))
    assert pauses == [4.0, 8.0] and told.files == 6
    assert "going on in 4 s" in lines[1]


def test_a_connection_that_is_cut_again_and_again_but_comes_on_is_not_given_up_on(hub, tmp_path):
    hub.faults = {"model.safetensors": ["cut"] * 9}
    _, _, pauses = staged(tmp_path / "m", hugging(hub))
    assert lies(tmp_path / "m") and len(pauses) == 9


def test_a_source_with_wrong_bytes_is_asked_twice(hub, tmp_path):
    hub.faults = {"model.safetensors": ["wrong"]}
    words = refused(tmp_path / "m", hugging(hub))
    assert "what came is wrong" in words and "the source is damaged, or something on the way changes what it sends" in words
    assert len(hub.fetched("model.safetensors")) == 2


def test_a_needed_file_that_is_refused_fails_at_the_end_and_names_it(hub, tmp_path):
    hub.faults = {"tokenizer.json": [403], "README.md": [403]}
    words = refused(tmp_path / "m", hugging(hub))
    assert words.startswith("all but this is there now: tokenizer.json: ") and "README" not in words
    assert "A gated model wants a token: model_tokens" in words
    assert lies(tmp_path / "m", NEEDED - {"tokenizer.json"})


def test_what_an_extra_file_says_is_only_a_note(hub, tmp_path):
    hub.faults = {"README.md": [403]}
    told, _, _ = staged(tmp_path / "m", hugging(hub))
    assert len(told.notes) == 1 and told.notes[0].startswith("README.md could not be had: ")


@pytest.mark.parametrize("wanted", [hugging, mirrored])
def test_a_source_without_a_tokenizer_is_refused_before_the_gigabytes_come(hub, tmp_path, wanted):
    del hub.files["tokenizer.json"]
    words = refused(tmp_path / "m", wanted(hub))
    assert "a start would lack tokenizer.json or tokenizer.model" in words and "the source has no such file" in words
    assert not (tmp_path / "m").exists() and not hub.fetched("model.safetensors")[2:]
    (tmp_path / "m").mkdir()
    (tmp_path / "m/tokenizer.json").write_bytes(b"{}")  # from elsewhere
    staged(tmp_path / "m", wanted(hub))


def test_a_mirrors_refusal_of_a_tokenizer_is_known_before_the_gigabytes_come(hub, tmp_path):
    hub.faults = {"tokenizer.json": [403]}
    words = refused(tmp_path / "m", mirrored(hub))
    assert "a start would lack tokenizer.json (http://127.0.0.1" in words and "HTTP 403" in words
    assert not (tmp_path / "m").exists()


def test_no_room_is_said_before_the_first_byte(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(place, "free_bytes", lambda _: 100 * 2**20)
    assert "156 MiB of room are missing" in refused(tmp_path / "m", hugging(hub))
    assert not (tmp_path / "m").exists()


def test_a_gated_model_says_what_is_wanted(tmp_path):
    hub = Hub(dict(FILES), token="hf_s3cret")
    try:
        assert "A gated model wants a token: model_tokens" in refused(tmp_path / "m", hugging(hub))
        words = refused(tmp_path / "m", hugging(hub), token="hf_other")
        assert "A token was sent: see that it is valid" in words and "hf_other" not in words
        staged(tmp_path / "m", hugging(hub), token="hf_s3cret")
    finally:
        hub.close()


def test_a_hub_that_lists_a_gated_model_and_gives_nothing_of_it(hub, tmp_path):
    hub.faults = {name: [403] for name in FILES}
    words = refused(tmp_path / "m", hugging(hub))
    assert words.startswith("the source lists its files and gives none of the 5 that are needed: 1_Pooling/config.json: ")
    assert words.count("HTTP 403") == 1 and "A gated model wants a token" in words


def test_a_run_that_is_dead_is_gone_on_with_and_one_that_lives_is_not(hub, tmp_path):
    place.prepare(tmp_path / "m")
    place.layout.write_json(place.meta(tmp_path / "m") / "staging.json", {"run": "x 2 2", "by": "eve on lab", "since": "today"})
    assert "is being staged by another run (eve on lab, since today" in refused(tmp_path / "m", hugging(hub))
    staged(tmp_path / "m", hugging(hub), dead=lambda holder: holder["run"] == "x 2 2")
    assert lies(tmp_path / "m")


def test_several_hosts_are_fed_from_one_copy(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "PIECE", 200_000)
    staged(tmp_path / "copy", hugging(hub))
    hub.heard.clear()
    one, _ = side(tmp_path / "copy", source("folder", str(tmp_path / "copy")))
    for number in (1, 2):
        found = staging.with_hashes(staging.offer(one))
        brought = []

        def put(file, brought=brought, number=number):
            place_there = tmp_path / f"piece-{number}"
            place_there.write_bytes(file.read_bytes())
            brought.append(file.stat().st_size)
            return str(place_there)

        fed, _ = side(tmp_path / f"host-{number}", source(fetch.FED, ""))
        staging.bring(fed, found, lambda _: None, put)
        assert lies(tmp_path / f"host-{number}")
        assert sum(brought) == sum(len(FILES[n]) for n in NEEDED | {"README.md"}) and max(brought) == 200_000
    assert hub.heard == []
    found = place.files_of(place.read(tmp_path / "host-1"))["model.safetensors"]["sha256"]
    assert found == hashlib.sha256(FILES["model.safetensors"]).hexdigest()


def test_a_deep_check_goes_through_all_files(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(serve, "BUDGET_S", 0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serve, "BUDGET_S", 20.0)
        staged_files, _, _ = staged(tmp_path / "m", hugging(hub))
    (tmp_path / "m/config.json").write_text("{}")
    (tmp_path / "m/tokenizer.json").unlink()
    lines = []
    count, damaged = staging.check(side(tmp_path / "m", hugging(hub))[0], lines.append)
    assert count == staged_files.files == len(lines)
    assert sorted(damaged) == ["config.json", "tokenizer.json"] and "cannot be read" in damaged["tokenizer.json"]
