"""`modelyard accept` on a service that really runs: answers, what is kept, who is told."""

from __future__ import annotations

import contextlib
import json
import shutil
import stat
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import yaml
from accepting import NAME, SECRET, Accept, stopped, wanted
from harness import ROOT
from web import Web

PASSWORD = "vault-pass-8c41aa07"


def test_what_serves_is_accepted_and_everything_is_kept_for_its_owner_alone(accept: Accept) -> None:
    leaders = [accept.site.leader(NAME, index) for index in (0, 1)]
    loads = accept.site.home / "services" / NAME / "load"
    loads.mkdir(exist_ok=True)
    shutil.copy(ROOT / "tests/fixtures/reports/load_sweep.json", loads / "20261129T221500Z.json")
    done = accept.run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    record = accept.latest
    assert (record["schema"], record["answer"], record["before"], record["trigger"]) == (1, "accepted", None, "person")
    (service,) = record["hosts"]["host-a"]["services"]
    assert (service["name"], service["answer"]) == (NAME, "accepted")
    assert {step["instance"] for step in service["steps"]} == {0, 1}
    assert service["manifest"]["versions"]["vllm"] == "0.32.0"
    assert ET.parse(accept.state / "latest.xml").getroot().get("failures") == "0"
    assert service["load"]["id"] == json.loads((loads / "20261129T221500Z.json").read_text())["id"]
    page = (accept.state / "latest.html").read_text(encoding="utf-8")
    assert "accepted" in page.lower()
    assert page.count('<section id="loads">') == 1, "the newest load test of the service"
    assert "PLAY RECAP" in (accept.state / "latest.log").read_text(encoding="utf-8")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (accept.state / "runs").iterdir()}
    assert set(modes.values()) == {0o600}
    assert not (accept.state / "work").exists()
    assert [accept.site.leader(NAME, index) for index in (0, 1)] == leaders


def test_no_file_of_a_run_holds_a_secret(accept: Accept) -> None:
    """Keys of the inventory, variables of the caller's environment, and the password of a vault that is passed through."""
    secret = accept.folder / "password"
    secret.write_text(PASSWORD, encoding="utf-8")
    vault = Path(sys.executable).parent / "ansible-vault"
    words = [str(vault), "encrypt_string", "--vault-password-file", str(secret), SECRET, "--name", NAME]
    made = subprocess.run(words, capture_output=True, text=True, check=True, env=accept.environment())
    inventory = accept.folder / "hosts.yml"
    data = yaml.safe_load(accept.site.inventory.read_text(encoding="utf-8"))
    del data["all"]["hosts"]["host-a"]["modelyard_api_keys"]
    inventory.write_text(yaml.safe_dump(data), encoding="utf-8")
    (accept.folder / "group_vars").mkdir()
    lines = made.stdout.strip().replace("\n", "\n  ")
    (accept.folder / "group_vars/all.yml").write_text(f"modelyard_api_keys:\n  {lines}\n", encoding="utf-8")
    without = accept.run(inventory=inventory)
    assert without.returncode == 5, without.stdout + without.stderr
    assert "vault" in without.stdout.lower()
    done = accept.run("--vault-password-file", "password", "-e", "modelyard_hosts=all", inventory=inventory)
    assert done.returncode == 0, done.stdout + done.stderr
    for path in [p for p in accept.state.rglob("*") if p.is_file()]:
        text = path.read_text(encoding="utf-8", errors="replace")
        assert SECRET not in text, path
        assert PASSWORD not in text, path


def test_nothing_secret_lies_on_the_disk_meanwhile_either(accept: Accept) -> None:
    process = accept.begin()
    seen = set()
    work = accept.state / "work"
    while process.poll() is None:
        for path in work.rglob("*"):
            with contextlib.suppress(OSError):
                if path.is_file():
                    seen.add(path.name.partition("-")[0])
                    assert SECRET not in path.read_text(encoding="utf-8", errors="replace") or path.name == "command", path
        with contextlib.suppress(OSError):
            # The runner writes the whole environment there, for an instant; that it does not stay is what counts.
            text = (work / "artifacts/run/command").read_text(encoding="utf-8")
            time.sleep(0.2)
            assert SECRET not in (work / "artifacts/run/command").read_text(encoding="utf-8") or SECRET not in text
        time.sleep(0.05)
    assert process.wait() == 0
    assert "command" in seen


def test_people_are_told_what_changes_and_nothing_else(accept: Accept) -> None:
    script, told = accept.folder / "tell.sh", accept.folder / "told"
    script.write_text(f'#!/bin/sh\ncat >> {told}\nprintf "%s\\n" "$@" >> {told}.arguments\n', encoding="utf-8")
    script.chmod(0o755)
    mail = accept.folder / "mail"
    sendmail = ["/bin/sh", "-c", f"cat >> {mail}"]
    with Web(200) as web:
        ways = [
            {"kind": "webhook", "url": web.url},
            {"kind": "command", "command": [str(script), "--from-modelyard"]},
            {"kind": "mail", "to": ["admin@example.org"], "command": sendmail},
        ]
        accept.configure(tell=ways)
        assert accept.run().returncode == 0
        assert web.heard == [], "the first answer is no news when all is well"
        with wanted(accept.site, top_logprobs=400):
            done = accept.run()
            assert done.returncode == 1, done.stdout + done.stderr
            assert "Told: webhook 0, command 1, mail 2" in done.stdout
            (_, message) = web.heard[0]
            assert message["headline"] == f"Modelyard acceptance: host-a/{NAME} failed (was accepted)"
            assert [item["where"] for item in message["news"]] == [f"host-a/{NAME}", "*"]
            assert "step logprobs on instance 0" in message["text"]
            failed = accept.latest
            assert (failed["before"], failed["changed_since"]) == ("accepted", failed["id"])
            (service,) = failed["hosts"]["host-a"]["services"]
            assert Path(service["evidence"]).is_dir()
            assert accept.run().returncode == 1
            assert len(web.heard) == 1, "the same failure is told once"
            assert accept.latest["changed_since"] == failed["id"]
        with stopped(accept.site, 1):
            assert accept.run().returncode == 1
        assert "for another reason: step health on instance 1" in web.heard[1][1]["news"][0]["words"]
        assert accept.run("--quiet").returncode == 0
        assert [item["answer"] for item in web.heard[2][1]["news"]] == ["accepted", "accepted"]
        assert len(web.heard) == 3
    assert told.read_text(encoding="utf-8").count('"headline"') == 3
    arguments = (accept.folder / "told.arguments").read_text(encoding="utf-8").splitlines()
    assert arguments[0] == "--from-modelyard"
    assert json.loads(Path(arguments[1]).read_text(encoding="utf-8"))["id"] == failed["id"]
    assert f"Subject: Modelyard acceptance: host-a/{NAME} failed (was accepted)" in mail.read_text(encoding="utf-8")


@pytest.mark.further
def test_without_a_configuration_a_quiet_run_prints_what_is_news_for_the_mails_of_cron(accept: Accept) -> None:
    done = accept.run("--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with wanted(accept.site, top_logprobs=400):
        done = accept.run("--quiet")
        assert done.returncode == 1
        assert done.stdout.startswith(f"host-a/{NAME}: failed (was accepted). step logprobs on instance 0")
        done = accept.run("--quiet")
        assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


def test_what_cannot_be_told_changes_no_exit_status_and_is_told_by_the_next_run(accept: Accept) -> None:
    with Web(0) as web:
        accept.configure(tell=[{"kind": "webhook", "url": web.url, "timeout_s": 1}], tell_limit_s=2)
        with wanted(accept.site, top_logprobs=400):
            began = time.monotonic()
            done = accept.run()
        assert done.returncode == 1, done.stdout + done.stderr
        assert time.monotonic() - began < 60
        assert "not told by webhook 0: 127.0.0.1: " in done.stderr
        assert "s3cret" not in done.stdout + done.stderr + (accept.state / "latest.json").read_text(encoding="utf-8")
        assert [p.name for p in (accept.state / "outbox").iterdir()] == [f"{accept.latest['id']}.json"]
    with Web(200) as web:
        accept.configure(tell=[{"kind": "webhook", "url": web.url}])
        done = accept.run()
        assert done.returncode == 0
        assert [message["answer"] for _, message in web.heard] == ["failed", "accepted"]
        assert not list((accept.state / "outbox").iterdir())


def test_a_host_that_is_down_is_unreachable_and_the_others_are_judged(accept: Accept) -> None:
    inventory = accept.folder / "two.yml"
    data = yaml.safe_load(accept.site.inventory.read_text(encoding="utf-8"))
    data["all"]["hosts"]["away"] = {"ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_connection": "ssh"}
    inventory.write_text(yaml.safe_dump(data), encoding="utf-8")
    done = accept.run(inventory=inventory)
    assert done.returncode == 3, done.stdout + done.stderr
    hosts = accept.latest["hosts"]
    assert {name: host["answer"] for name, host in hosts.items()} == {"away": "unreachable", "host-a": "accepted"}
    assert "Connection refused" in hosts["away"]["problem"]
    root = ET.parse(accept.state / "latest.xml").getroot()
    assert (root.get("errors"), root.get("failures")) == ("1", "0")
    done = accept.run("--limit", "host-a", inventory=inventory)
    assert done.returncode == 0
    assert accept.latest["before"] is None, "a run of other hosts is not compared with"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"modelyard_restrat": True}, "did you mean modelyard_restart?"),
        ({"modelyard_services": []}, "the inventory names no service for any of these hosts"),
    ],
    ids=["misspelt", "nothing to ask"],
)
def test_an_inventory_that_cannot_be_judged_is_an_error_and_never_accepted(
    accept: Accept, change: dict[str, Any], words: str
) -> None:
    inventory = accept.folder / "wrong.yml"
    data = yaml.safe_load(accept.site.inventory.read_text(encoding="utf-8"))
    del data["all"]["hosts"]["host-a"]["modelyard_api_keys"]
    data["all"]["hosts"]["host-a"].update(change)
    inventory.write_text(yaml.safe_dump(data), encoding="utf-8")
    done = accept.run(inventory=inventory)
    assert done.returncode == 5, done.stdout + done.stderr
    assert words in done.stdout
    done = accept.run(inventory=accept.folder / "not-there.yml")
    assert done.returncode == 5
    assert "no host of" in done.stdout


def test_what_runs_with_other_parameters_is_not_asked_and_not_accepted(accept: Accept) -> None:
    before = accept.site.services[0]["engine"]
    accept.site.services[0]["engine"] = {**before, "max_model_len": 2048}
    done = accept.run()
    accept.site.services[0]["engine"] = before
    assert done.returncode == 1, done.stdout + done.stderr
    (service,) = accept.latest["hosts"]["host-a"]["services"]
    assert [(step["id"], step["instance"]) for step in service["steps"]] == [("plan", 0), ("plan", 1)]
    assert "PF-RESTART-NEEDED" in service["steps"][0]["detail"]
    assert "modelyard_restart=true" in service["steps"][0]["next"]
