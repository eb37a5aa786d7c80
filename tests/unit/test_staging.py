"""Fetching a model's files from a hub, a mirror and a folder over a real connection, with what goes wrong on the way."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process.staging import fetch, place, serve, sources, verify, web
from ansible_collections.modelyard.core.plugins.module_utils.survey import models
from hub import COMMIT, Hub

FILES = {
    ".gitattributes": b"*.safetensors filter=lfs",
    "README.md": b"# tiny",
    "config.json": b'{"architectures": ["Qwen3ForCausalLM"]}',
    "tokenizer.json": b'{"a": 1}',
    "tokenizer_config.json": b'{"b": 1}',
    "model.safetensors": bytes(range(256)) * 2000,
    "original/consolidated.00.pth": b"x" * 5000,
    "1_Pooling/config.json": b'{"c": 1}',
}
NEEDED = {name for name in FILES if name not in (".gitattributes", "README.md", "original/consolidated.00.pth")}
HOLDER = {"run": "here 1 1", "by": "me", "since": "now"}


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def hub():
    made = Hub(dict(FILES))
    yield made
    made.close()


def source(kind, at, **changes):
    base = {"from": kind, "at": at, "repo": "org/tiny", "revision": "", "subfolder": "", "include": [], "exclude": []}
    return {**base, **changes}


def hugging(hub, **changes):
    return source("huggingface", hub.url, **changes)


def mirrored(hub, **changes):
    return source("mirror", f"{hub.url}/mirror", **changes)


def params(path, wanted, offer=None, **changes):
    entries = [*offer["needed"], *offer["extra"]] if offer else []
    base = {"path": str(path), "source": wanted, "token": "", "entries": entries, "told": {"from": wanted["from"]}, "names": []}
    return {**base, "budget_s": 20.0, "holder": HOLDER, "dead_run": "", "piece": {}, **changes}


def staged(path, wanted, token="", steps=12):
    """Ask until all is there or nothing more can come; (last answer, troubles on the way, offer)."""
    offer = serve.answer("offer", params(path, wanted, token=token))
    entries, troubles = [*offer["needed"], *offer["extra"]], []
    for _ in range(steps):
        said = serve.answer("step", params(path, wanted, token=token, entries=entries))
        entries = [entry for entry in entries if entry["name"] not in said["failed"]]
        troubles += [said["trouble"]["words"]] if said["trouble"] else []
        if len(said["done"]) == len(entries):
            serve.answer("end", params(path, wanted))
            break
    return said, troubles, offer


def lies(path, names=NEEDED):
    return all((path / name).read_bytes() == FILES[name] for name in names)


KINDS = {
    "huggingface": hugging,
    "modelscope": lambda hub: source("modelscope", hub.url),
    "mirror": mirrored,
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_model_needs_is_fetched_and_nothing_else(hub, tmp_path, kind):
    said, troubles, _ = staged(tmp_path / "m", KINDS[kind](hub))
    assert lies(tmp_path / "m") and not troubles and not said["failed"]
    assert set(place.sizes(tmp_path / "m")) == NEEDED | {"README.md"}
    assert not hub.fetched("original/consolidated.00.pth") and not hub.fetched(".gitattributes")


def test_the_manifest_has_the_hash_of_every_file_and_a_second_staging_fetches_nothing(hub, tmp_path):
    staged(tmp_path / "m", hugging(hub))
    files = place.files_of(place.read(tmp_path / "m"))
    assert {name: entry["sha256"] for name, entry in files.items()} == {
        name: hashlib.sha256(FILES[name]).hexdigest() for name in NEEDED | {"README.md"}
    }
    hub.heard.clear()
    said, _, offer = staged(tmp_path / "m", hugging(hub))
    assert len(said["done"]) == len(files) and offer["revision"] == COMMIT
    assert [path for path, _ in hub.heard] == ["/api/models/org/tiny/revision/main?blobs=true"]


def test_a_stray_file_that_is_refused_does_not_matter(hub, tmp_path):
    hub.faults = {name: [403] for name in (".gitattributes", "README.md", "original/consolidated.00.pth")}
    said, _, _ = staged(tmp_path / "m", hugging(hub))
    assert lies(tmp_path / "m")
    assert list(place.files_of(place.read(tmp_path / "m"))) == sorted(NEEDED) and said["trouble"] == {}


def test_a_needed_file_that_is_refused_is_named_and_the_others_come_all_the_same(hub, tmp_path):
    hub.faults = {"tokenizer.json": [403]}
    offer = serve.answer("offer", params(tmp_path, hugging(hub)))
    said = serve.answer("step", params(tmp_path / "m", hugging(hub), offer))
    assert list(said["failed"]) == ["tokenizer.json"] and "HTTP 403" in said["failed"]["tokenizer.json"]
    assert lies(tmp_path / "m", NEEDED - {"tokenizer.json"})
    hub.faults.clear()
    hub.heard.clear()
    staged(tmp_path / "m", hugging(hub))
    assert lies(tmp_path / "m")
    assert len(hub.heard) == 2 and hub.fetched("tokenizer.json") == [""]  # the list, and what was missing


def test_a_mirror_that_refuses_a_needed_file_says_so_before_anything_is_fetched(hub, tmp_path):
    hub.faults = {"tokenizer.json": [403]}
    offer = serve.answer("offer", params(tmp_path, mirrored(hub)))
    assert list(offer["failed"]) == ["tokenizer.json"]


@pytest.mark.parametrize("kind", ["huggingface", "mirror"])
def test_a_cut_connection_is_gone_on_with_where_it_ended(hub, tmp_path, kind):
    hub.faults = {"model.safetensors": [None, "cut"] if kind == "mirror" else ["cut"]}  # the mirror is asked for its length first
    _, troubles, _ = staged(tmp_path / "m", KINDS[kind](hub))
    assert lies(tmp_path / "m") and len(troubles) == 1 and "bytes early" in troubles[0]
    assert hub.fetched("model.safetensors")[-2:] == ["", "bytes=256000-"]


def test_a_half_of_another_version_is_not_gone_on_with(hub, tmp_path):
    hub.faults = {"model.safetensors": [None, "cut"]}
    offer = serve.answer("offer", params(tmp_path, mirrored(hub)))
    serve.answer("step", params(tmp_path / "m", mirrored(hub), offer))
    hub.files["model.safetensors"] = bytes(reversed(FILES["model.safetensors"]))
    serve.answer("step", params(tmp_path / "m", mirrored(hub), offer))
    assert (tmp_path / "m/model.safetensors").read_bytes() == hub.files["model.safetensors"]


def test_a_server_without_ranges_begins_anew(hub, tmp_path):
    hub.faults = {"model.safetensors": ["cut", "whole"]}
    staged(tmp_path / "m", hugging(hub))
    assert lies(tmp_path / "m")


def test_wrong_bytes_never_get_the_name_of_the_file(hub, tmp_path):
    hub.faults = {"model.safetensors": ["wrong"]}
    said, troubles, _ = staged(tmp_path / "m", hugging(hub), steps=3)
    assert "its hash is not the one that the source tells" in said["trouble"]["words"] and len(troubles) == 3
    assert not (tmp_path / "m/model.safetensors").exists()
    assert lies(tmp_path / "m", NEEDED - {"model.safetensors"})
    hub.faults = {"tokenizer.json": ["wrong"]}  # small ones are known by Git's own hash
    said, _, _ = staged(tmp_path / "n", hugging(hub), steps=2)
    assert said["trouble"]["name"] == "tokenizer.json"


@pytest.mark.parametrize("status", [429, 500])
def test_a_hub_that_is_busy_is_asked_again(hub, tmp_path, status):
    hub.faults = {"config.json": [status, status]}
    _, troubles, _ = staged(tmp_path / "m", hugging(hub))
    assert lies(tmp_path / "m") and len(troubles) == 2 and f"HTTP {status}" in troubles[0]


def test_a_slow_server_does_not_keep_a_call_beyond_its_time(hub, tmp_path):
    hub.faults = {"model.safetensors": ["slow"]}
    offer = serve.answer("offer", params(tmp_path, hugging(hub)))
    began = time.monotonic()
    said = serve.answer("step", params(tmp_path / "m", hugging(hub), offer, budget_s=0.4))
    assert time.monotonic() - began < 2.0
    assert said["now"] == "model.safetensors" and 0 < said["at"] < len(FILES["model.safetensors"]) and not said["trouble"]
    hub.faults.clear()
    staged(tmp_path / "m", hugging(hub))
    assert lies(tmp_path / "m") and hub.fetched("model.safetensors")[-1].startswith("bytes=")


def test_a_token_goes_to_the_hub_and_not_to_the_store_that_it_sends_on_to(tmp_path):
    store = Hub(dict(FILES))
    hub = Hub(dict(FILES), token="hf_s3cret", store=store)
    hub.faults = {"model.safetensors": ["redirect"]}
    try:
        staged(tmp_path / "m", hugging(hub), token="hf_s3cret")
        assert lies(tmp_path / "m")
        assert store.heard and not any("Authorization" in headers for _, headers in store.heard)
        with pytest.raises(serve.Failed, match="HTTP 401 Access to model org/tiny is restricted") as refused:
            serve.answer("offer", params(tmp_path, hugging(hub)))
        assert refused.value.status == 401
        assert "s3cret" not in (tmp_path / "m" / place.INSIDE / "manifest.json").read_text()
    finally:
        hub.close()
        store.close()


def test_modelscope_gets_its_token_in_its_own_way():
    assert sources.headers({"from": "modelscope"}, "t")["Cookie"] == "m_session_id=t"
    assert "Cookie" not in sources.headers({"from": "huggingface"}, "t") and not sources.headers({"from": "mirror"}, "")


def test_what_is_there_and_right_is_taken_and_what_is_wrong_is_set_aside_and_not_deleted(hub, tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m/model.safetensors").write_bytes(FILES["model.safetensors"])
    (tmp_path / "m/tokenizer.json").write_bytes(b'{"a": 2}')
    (tmp_path / "m/notes.txt").write_text("mine")
    said, _, _ = staged(tmp_path / "m", hugging(hub))
    assert lies(tmp_path / "m") and not hub.fetched("model.safetensors")
    assert [Path(path).read_bytes() for path in said["aside"]] == [b'{"a": 2}']
    assert (tmp_path / "m/notes.txt").read_text() == "mine"


def test_a_full_disk_keeps_what_is_there_and_says_how_much_is_missing(hub, tmp_path, monkeypatch):
    hub.faults = {"model.safetensors": ["cut"]}
    offer = serve.answer("offer", params(tmp_path, hugging(hub)))
    serve.answer("step", params(tmp_path / "m", hugging(hub), offer))
    monkeypatch.setattr(place, "free_bytes", lambda _: 1000)
    monkeypatch.setattr(fetch, "SPARE", 2**20)
    with pytest.raises(serve.Failed, match=r"1 MiB of room are missing for model\.safetensors"):
        serve.answer("step", params(tmp_path / "m", hugging(hub), offer))
    assert place.partial_bytes(tmp_path / "m", "model.safetensors") == 256000
    assert lies(tmp_path / "m", NEEDED - {"model.safetensors"})


def test_a_disk_that_gets_full_while_it_is_written(hub, tmp_path):
    offer = serve.answer("offer", params(tmp_path, hugging(hub)))
    place.prepare(tmp_path / "m")
    place.partial(tmp_path / "m", "config.json").symlink_to("/dev/full")
    with pytest.raises(serve.Failed, match=r"of room are missing for config\.json"):
        serve.answer("step", params(tmp_path / "m", hugging(hub), offer))


def test_room_is_counted_before_the_first_byte(hub, tmp_path, monkeypatch):
    offer = serve.answer("offer", params(tmp_path, hugging(hub)))
    monkeypatch.setattr(place, "free_bytes", lambda _: 1000)
    said = serve.answer("look", params(tmp_path / "m", hugging(hub), offer))
    assert said["left"] == sum(len(FILES[name]) for name in NEEDED | {"README.md"}) and said["short"] > fetch.SPARE
    assert not (tmp_path / "m").exists()


def test_two_runs_at_once(hub, tmp_path):
    offer = serve.answer("offer", params(tmp_path, hugging(hub)))
    hub.faults = {"model.safetensors": ["slow"]}
    serve.answer("step", params(tmp_path / "m", hugging(hub), offer, budget_s=0.1))
    other = {"run": "there 2 2", "by": "somebody", "since": "today"}
    with pytest.raises(serve.Failed, match=r"by another run \(me, since now; last sign of life"):
        serve.answer("step", params(tmp_path / "m", hugging(hub), offer, holder=other))
    hub.faults.clear()
    said = serve.answer("step", params(tmp_path / "m", hugging(hub), offer, holder=other, dead_run=HOLDER["run"]))
    assert len(said["done"]) == len(offer["needed"]) + len(offer["extra"]) and lies(tmp_path / "m")
    silent = time.time() - place.SILENT_S - 1
    os.utime(place.meta(tmp_path / "m") / "staging.json", (silent, silent))
    serve.answer("step", params(tmp_path / "m", hugging(hub), offer))


def test_a_mirror_that_does_not_tell_lengths(hub, tmp_path):
    hub.faults = {"model.safetensors": [405, None, None]}
    hub.sums = True
    said, troubles, offer = staged(tmp_path / "m", mirrored(hub))
    assert [entry["size"] for entry in offer["needed"] if entry["name"] == "model.safetensors"] == [None]
    assert lies(tmp_path / "m") and not troubles and not said["failed"]


def test_a_mirror_that_lists_nothing_is_known_by_its_sums(hub, tmp_path):
    hub.listing = False
    with pytest.raises(serve.Failed, match=r"HTTP 403.*switch its listing on \(autoindex\), or put a SHA256SUMS beside"):
        serve.answer("offer", params(tmp_path, mirrored(hub)))
    hub.sums = True
    hub.faults = {"model.safetensors": [None, "wrong"]}
    said, _, _ = staged(tmp_path / "m", mirrored(hub), steps=2)
    assert "its hash" in said["trouble"]["words"]


def test_a_folder_gives_its_files_and_a_checkpoint_of_a_training_by_name(tmp_path):
    for number in (100, 200):
        folder = tmp_path / f"run/checkpoint-{number}"
        folder.mkdir(parents=True)
        (folder / "adapter_config.json").write_text(json.dumps({"r": number}))
        (folder / "adapter_model.safetensors").write_bytes(b"x" * number)
        (folder / "optimizer.pt").write_bytes(b"y" * 1000)
    said, _, _ = staged(tmp_path / "m", source("folder", str(tmp_path / "run"), subfolder="checkpoint-200"))
    assert place.sizes(tmp_path / "m") == {"adapter_config.json": 10, "adapter_model.safetensors": 200} and not said["failed"]
    with pytest.raises(serve.Failed, match=r"no checkpoint-300/ in it; its folders are checkpoint-100, checkpoint-200"):
        serve.answer("offer", params(tmp_path, source("folder", str(tmp_path / "run"), subfolder="checkpoint-300")))


def test_names_that_lead_out_of_the_folder_are_never_written(tmp_path):
    hub = Hub({**FILES, "../../evil.json": b"{}", "/etc/evil.json": b"{}", ".cache/modelyard/manifest.json": b"{}"})
    try:
        offer = serve.answer("offer", params(tmp_path, hugging(hub)))
        assert sorted(offer["unsafe"]) == ["../../evil.json", ".cache/modelyard/manifest.json", "/etc/evil.json"]
        assert {entry["name"] for entry in offer["needed"]} == NEEDED
    finally:
        hub.close()


def test_pieces_that_the_control_node_brings(tmp_path):
    content = FILES["model.safetensors"]
    sha256 = hashlib.sha256(content).hexdigest()
    entry = {"name": "model.safetensors", "size": len(content), "sha256": sha256, "git": "", "url": ""}
    fed = source(fetch.FED, "")
    said = serve.answer("step", params(tmp_path / "m", fed, entries=[entry]))
    assert said["now"] == "model.safetensors" and said["at"] == 0 and not said["done"]
    for begin in (0, 300000, 0):  # the last one comes twice, as after an answer that was lost
        piece = tmp_path / "piece"
        piece.write_bytes(content[begin : begin + 300000])
        told = {"name": entry["name"], "offset": begin, "file": str(piece), "sha256": place.hashes(piece)[0]}
        said = serve.answer("step", params(tmp_path / "m", fed, entries=[entry], piece=told))
    assert said["done"] == ["model.safetensors"]
    assert (tmp_path / "m/model.safetensors").read_bytes() == content


def test_a_deep_check_names_what_was_changed_and_what_it_found_is_known_afterwards(hub, tmp_path):
    staged(tmp_path / "m", hugging(hub))
    path = tmp_path / "m/model.safetensors"
    before = path.stat()
    with path.open("r+b") as stream:
        stream.seek(1000)
        stream.write(b"\xff")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # what no look at sizes and times can see
    names = serve.answer("verify", params(tmp_path / "m", hugging(hub)))["known"]
    said = serve.answer("verify", params(tmp_path / "m", hugging(hub), names=names))
    assert said["checked"] == names and list(said["damaged"]) == ["model.safetensors"]
    assert list(place.read(tmp_path / "m")["damaged"]) == ["model.safetensors"]
    hub.heard.clear()
    said, _, _ = staged(tmp_path / "m", hugging(hub))
    assert lies(tmp_path / "m") and len(said["aside"]) == 1 and not place.read(tmp_path / "m")["damaged"]
    assert len(hub.heard) == 2


def test_a_look_knows_by_lengths_and_times_what_was_changed_since(hub, tmp_path):
    folder = tmp_path / "m"
    assert (models.model_listing(str(folder))["staged"], models.model_listing(str(folder))["staging"]) == (None, None)
    staged(folder, hugging(hub))
    found = models.model_listing(str(folder))
    assert found["staged"] == {"from": "huggingface"} and found["changed"] == [] and found["staging"] is None
    assert set(found["files"]) == NEEDED | {"README.md"}
    (folder / "config.json").write_bytes(FILES["config.json"])
    (folder / "tokenizer_config.json").write_bytes(b'{"b": 12}')
    found = models.model_listing(str(folder))
    assert found["changed"] == ["config.json"]
    assert found["damaged"]["tokenizer_config.json"] == "it has 9 bytes, 8 were staged"
    verify.check(folder, verify.known(folder), 9.0)
    found = models.model_listing(str(folder))
    assert found["changed"] == [] and "its SHA-256 begins with" in place.read(folder)["damaged"]["tokenizer_config.json"]


def test_a_manifest_that_somebody_has_spoilt_is_none(hub, tmp_path):
    staged(tmp_path / "m", hugging(hub))
    for text in ("[]", "{}", '{"schema": 1, "source": [], "files": {}}', '{"schema": 9, "source": {}, "files": {}}', "{"):
        (place.meta(tmp_path / "m") / "manifest.json").write_text(text)
        assert place.read(tmp_path / "m") == {} and models.model_listing(str(tmp_path / "m"))["staged"] is None
    staged(tmp_path / "m", hugging(hub))
    assert len(place.files_of(place.read(tmp_path / "m"))) == 6 and hub.fetched("model.safetensors") == [""]


def test_a_deep_check_stops_when_its_time_is_over_and_goes_on(hub, tmp_path):
    staged(tmp_path / "m", hugging(hub))
    names = verify.known(tmp_path / "m")
    assert verify.check(tmp_path / "m", names, 0.0)["checked"] == names[:1]


def test_no_address_is_shown_with_a_login_or_a_signature():
    assert web.shown("https://me:s3cret@mirror/a/b?sig=1#x") == "https://***@mirror/a/b"
    trouble = web.lost(ConnectionRefusedError("refused"), "https://me:s3cret@mirror/a")
    assert "s3cret" not in str(trouble) and trouble.passing


@pytest.mark.parametrize("answer", ["[]", "<html>login</html>", '{"sha": "a"}'])
def test_an_answer_that_is_none(tmp_path, monkeypatch, answer):
    monkeypatch.setattr(web, "text", lambda *_: answer)
    with pytest.raises(serve.Failed, match=r"no JSON object|lists no files"):
        serve.answer("offer", params(tmp_path, source("huggingface", "http://127.0.0.1:1")))
