"""Telling people: webhooks that answer, refuse, break, hang, drip or have a wrong certificate; programs; the outbox."""

from __future__ import annotations

import email
import email.policy
import json
import time
from pathlib import Path
from typing import Any

import pytest
import web
import yaml
from harness import alive

from modelyard import cli
from modelyard.accept import config
from modelyard.tell import deliver, outbox, ways

MESSAGE = {"schema": 1, "id": "20261130T114200Z", "headline": "all is\nwell", "text": "x\x1b[31m ☃", "record": "/state/r.json"}


def way(kind: str, **values: Any) -> dict[str, Any]:
    return config.of({"tell": [{"kind": kind, **values}]}, "").tell[0]


def message(id: str = "20261130T114200Z", **more: Any) -> dict[str, Any]:
    return {**MESSAGE, "id": id, "at": time.time(), **more}


def why(wanted: dict[str, Any], limit_s: float = 10.0) -> ways.NotTold:
    with pytest.raises(ways.NotTold) as caught:
        ways.tell(wanted, MESSAGE, limit_s)
    assert "s3cret" not in str(caught.value)
    return caught.value


def test_a_webhook_gets_json_and_a_token_that_no_command_line_shows(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t0ken\n", encoding="utf-8")
    with web.Web(204) as server:
        (tmp_path / "url").write_text(f"{server.url}\n", encoding="utf-8")
        ways.tell(way("webhook", url_file=str(tmp_path / "url"), token_file=str(tmp_path / "token")), MESSAGE, 5)
        ((headers, body),) = server.heard
    assert headers["Authorization"] == "Bearer t0ken"
    assert headers["Content-Type"] == "application/json"
    assert body == MESSAGE


@pytest.mark.parametrize(
    ("status", "words", "again"),
    [
        (500, "127.0.0.1: HTTP 500", True),
        (429, "127.0.0.1: HTTP 429", True),
        (404, "127.0.0.1: HTTP 404", False),
        (302, "it lives at another address now", False),
    ],
)
def test_a_webhook_that_refuses(status: int, words: str, again: bool) -> None:
    with web.Web(status) as server:
        said = why(way("webhook", url=server.url))
    assert words in str(said)
    assert said.again is again


def test_a_webhook_that_hangs_or_is_not_there() -> None:
    with web.Web(0) as server:
        began = time.monotonic()
        said = why(way("webhook", url=server.url, timeout_s=1))
    assert time.monotonic() - began < 4
    assert "127.0.0.1" in str(said)
    assert said.again
    assert "refused" in str(why(way("webhook", url="http://127.0.0.1:9/s3cret")))
    assert "cannot be read" in str(why(way("webhook", url_file="/not/there")))


def test_a_certificate_that_nobody_vouches_for_is_refused_and_an_own_authority_is_taken(tmp_path: Path) -> None:
    file = web.certificate(tmp_path)
    with web.Web(200, certificate=file) as server:
        assert "its certificate is not valid here" in str(why(way("webhook", url=server.url)))
        assert server.heard == []
        ways.tell(way("webhook", url=server.url, ca_file=str(file)), MESSAGE, 5)
        assert len(server.heard) == 1
    other = web.certificate(tmp_path, "192.0.2.1")
    with web.Web(200, certificate=other) as server:
        assert "IP address mismatch" in str(why(way("webhook", url=server.url, ca_file=str(other))))


def test_a_mail_goes_to_its_program_as_one_that_every_mail_program_can_read(tmp_path: Path) -> None:
    program = ["/bin/sh", "-c", f"cat > {tmp_path}/mail"]
    ways.tell(way("mail", to=["a@example.org", "b@example.org"], **{"from": "m@example.org"}, command=program), MESSAGE, 5)
    raw = (tmp_path / "mail").read_bytes()
    assert max(len(line) for line in raw.split(b"\n")) < 998
    found = email.message_from_bytes(raw, policy=email.policy.default)
    assert found["Subject"] == "all is well"
    assert found["To"] == "a@example.org, b@example.org"
    assert found["Auto-Submitted"] == "auto-generated"
    body = found.get_body()
    assert body is not None
    assert body.get_content().strip() == "x?[31m ☃"


def test_a_command_gets_the_record_as_its_last_word_and_the_message_on_its_input(tmp_path: Path) -> None:
    script = tmp_path / "tell"
    script.write_text(f'#!/bin/sh\ncat > {tmp_path}/in; echo "$2" > {tmp_path}/word\n', encoding="utf-8")
    script.chmod(0o755)
    ways.tell(way("command", command=[str(script), "first"]), MESSAGE, 5)
    assert json.loads((tmp_path / "in").read_text(encoding="utf-8")) == MESSAGE
    assert (tmp_path / "word").read_text(encoding="utf-8").strip() == "/state/r.json"


def test_a_command_that_fails_hangs_or_is_not_there(tmp_path: Path) -> None:
    said = why(way("command", command=["/bin/sh", "-c", "echo no route; exit 7"]))
    assert str(said) == "/bin/sh ended with status 7: no route"
    hanging = way("command", command=["/bin/sh", "-c", f"sleep 300 & echo $! > {tmp_path}/pid; wait"], timeout_s=1)
    assert "did not end within 1 s" in str(why(hanging))
    pid = int((tmp_path / "pid").read_text(encoding="utf-8"))
    assert web.wait_for(lambda: not alive(pid))
    said = why(way("command", command=[str(tmp_path / "absent")]))
    assert "No such file" in str(said)
    assert not said.again


def test_it_is_tried_again_with_pauses_until_it_is_told() -> None:
    with web.Web(500, 503, 200) as server:
        began = time.monotonic()
        assert deliver.one(way("webhook", url=server.url), [MESSAGE], 20) == {}
        assert len(server.heard) == 3
        assert 3 <= time.monotonic() - began < 8
    with web.Web(404) as server:
        assert deliver.one(way("webhook", url=server.url), [MESSAGE], 20) == {MESSAGE["id"]: "127.0.0.1: HTTP 404"}
        assert len(server.heard) == 1, "a wrong request stays wrong"


def test_pauses_grow_and_fit_into_the_limit() -> None:
    assert deliver.pauses(60) == [1, 2, 4, 8, 16]
    assert deliver.pauses(0.5) == []
    assert max(deliver.pauses(1000)) == 30
    assert sum(deliver.pauses(1000)) < 1000


def test_one_that_hangs_keeps_no_other_waiting_and_nobody_waits_for_it_beyond_the_limit() -> None:
    with web.Web(-1) as dripping, web.Web(200) as well:
        slow, good = way("webhook", url=dripping.url, name="slow"), way("webhook", url=well.url, name="good")
        began = time.monotonic()
        failed = deliver.all_ways([slow, good], {"slow": [MESSAGE], "good": [MESSAGE]}, 2)
        assert time.monotonic() - began < 6
        assert set(failed) == {"slow", "good"}
        assert (list(failed["slow"]), failed["good"]) == ([MESSAGE["id"]], {})
        assert len(well.heard) == 1


def test_what_waits_is_told_in_order_and_only_those_ways_that_lack_it(tmp_path: Path) -> None:
    with web.Web(500) as broken, web.Web(200) as well:
        both = [way("webhook", url=broken.url, name="broken"), way("webhook", url=well.url, name="well")]
        box = outbox.Outbox(tmp_path)
        assert box.send(both, message("1"), 0.5) == ["well"]
        assert "not told by broken: 127.0.0.1: HTTP 500" in box.words
        outbox.Outbox(tmp_path).send(both, message("2"), 0.5)
        assert [body["id"] for _, body in well.heard] == ["1", "2"]
        broken.answers = [200]
        broken.heard.clear()
        box = outbox.Outbox(tmp_path)
        assert box.send(both, message("3"), 5) == ["broken", "well"]
        assert [body["id"] for _, body in broken.heard] == ["1", "2", "3"]
        assert [body["id"] for _, body in well.heard] == ["1", "2", "3"]
        assert box.words == []
    assert list((tmp_path / "outbox").iterdir()) == []


def test_what_is_too_old_damaged_or_for_nobody_any_more_does_not_wait_for_ever(tmp_path: Path) -> None:
    folder = tmp_path / "outbox"
    folder.mkdir()
    old = {"message": message("old", at=time.time() - 8 * 86400), "ways": ["gone"]}
    (folder / "a.json").write_text(json.dumps(old), encoding="utf-8")
    (folder / "b.json").write_text("{", encoding="utf-8")
    (folder / "c.json").write_text(json.dumps({"message": message("c"), "ways": ["gone"]}), encoding="utf-8")
    box = outbox.Outbox(tmp_path)
    assert box.send([], None, 1) == []
    assert box.words == [
        f"never told, and given up: {MESSAGE['headline']} (a.json)",
        "never told, and given up: a damaged message (b.json)",
    ]
    assert [path.name for path in folder.iterdir()] == ["c.json"]


def test_the_command_sends_a_test_message_and_what_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "modelyard.yml"
    words = ["tell", "--config", str(file), "--state", str(tmp_path / "state")]
    file.write_text("tell: []\n", encoding="utf-8")
    assert cli.main([*words, "--test"]) == 2
    assert "nobody is to be told" in capsys.readouterr().err
    with web.Web(200) as well, web.Web(404) as wrong:
        ways = [{"kind": "webhook", "url": well.url, "name": "well"}, {"kind": "webhook", "url": wrong.url, "name": "wrong"}]
        file.write_text(yaml.safe_dump({"tell": ways}), encoding="utf-8")
        assert cli.main([*words, "--test"]) == 1
        assert capsys.readouterr().out.splitlines() == ["well: told", "wrong: 127.0.0.1: HTTP 404"]
        file.write_text(yaml.safe_dump({"tell": ways[:1]}), encoding="utf-8")
        assert cli.main(words) == 0
        assert capsys.readouterr().out.strip() == "Nothing waits"
        waiting = {"message": message("1"), "ways": ["well"]}
        (tmp_path / "state/outbox").mkdir()
        (tmp_path / "state/outbox/1.json").write_text(json.dumps(waiting), encoding="utf-8")
        assert cli.main(words) == 0
        assert [body["id"] for _, body in well.heard] == ["test", "1"]
        assert not list((tmp_path / "state/outbox").iterdir())
    assert cli.main(words[:3]) == 2
