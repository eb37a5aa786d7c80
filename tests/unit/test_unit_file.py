"""The unit file of an instance."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import files, planner, unit
from ansible_collections.modelyard.core.plugins.module_utils.process import identity, proc, systemctl
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import settings
from ansible_collections.modelyard.core.plugins.module_utils.process.supervisor import systemd
from deployed import host
from hypothesis import given
from hypothesis import strategies as st
from unit import worlds


def planned(**changes):
    return planner.plan(worlds.intent(worlds.service(**changes)), worlds.survey())["services"][0]


def made(tmp_path, supervisor="systemd", **changes):
    service = {**planned(**changes), "supervisor": supervisor}
    return files.of_service(service, host(tmp_path))["instances"][0]


def read(text):
    parser = configparser.ConfigParser(interpolation=None, strict=False, delimiters=("=",))
    parser.optionxform = str
    parser.read_string(text)
    return parser


def test_it_starts_anew_whatever_the_exit_code_and_stops_carefully(tmp_path):
    entry = made(tmp_path)
    assert entry["unit"] == "modelyard-tiny-qwen3.service"
    service = read(entry["unit_text"])["Service"]
    assert service["Restart"] == "always"
    assert service["KillMode"] == "mixed"
    assert service["User"] == "llm"
    assert service["ExecStartPre"].endswith(f'"free" "{entry["dir"]}"')
    assert '"keep"' in service["ExecStart"] and '"--under" "systemd"' in service["ExecStart"]
    assert service["ExecStop"].endswith('"--for-supervisor"')


def test_what_waits_or_stops_in_the_unit_is_not_taken_for_a_part_of_the_engine(tmp_path):
    """It has the unit and the marker of the instance; an engine works in the instance's folder besides."""
    entry = made(tmp_path)
    claim = identity.Claim(
        service="tiny-qwen3",
        folder=entry["dir"].rpartition("/")[0],
        runtime="/runtime",
        recorded=frozenset(),
        sessions=frozenset(),
        units=frozenset({entry["unit"]}),
        instance=0,
    )
    marker = entry["request"]["marker"]
    waits = identity.Seen(
        proc.Process(pid=70, ppid=1, pgid=70, sid=70, state="S", start=9, comm="python3", uid=1000, threads=1),
        marker=marker[identity.MARKER],
        instance=marker[identity.INSTANCE_MARKER],
        cwd=read(entry["unit_text"])["Service"]["WorkingDirectory"],
        unit=entry["unit"],
        files=frozenset({"/usr/bin/python3"}),
    )
    assert identity.verdict(identity.signs(waits, claim, {})) == identity.SUSPECT
    works = waits._replace(cwd=f"{entry['dir']}/run")
    assert identity.verdict(identity.signs(works, claim, {})) == identity.OURS


def test_its_limits_are_longer_than_what_they_limit(tmp_path):
    entry = made(tmp_path)
    stop = files.stop(planned(), 30)
    service = read(entry["unit_text"])["Service"]
    assert int(service["TimeoutStartSec"]) > 300 + stop["memory_s"]
    assert int(service["TimeoutStopSec"]) > stop["grace_s"] + stop["drain_s"] + stop["memory_s"] + 30 + 10


def test_the_unit_of_a_gateway_is_called_so_and_has_the_time_to_let_requests_end(tmp_path):
    service = worlds.service(gateway={**worlds.service()["gateway"], "kind": "modelyard", "port": 7000, "drain_s": 300})
    (planned_entry,) = planner.plan(worlds.intent(service), worlds.survey())["gateways"]
    planned_entry["supervisor"] = "systemd"
    entry = files.of_service(planned_entry, host(tmp_path))["instances"][0]
    text = read(entry["unit_text"])
    assert text["Unit"]["Description"] == "Modelyard gateway tiny-qwen3.gateway/0 on port 7000"
    stop = files.stop(planned_entry, 2)
    limits = settings.read("/none", "x", [{"request": entry["request"]}], stop).limits
    assert limits.drain_s >= 300
    # Asked once for all that time and 15 s; then TERM twice, KILL, and what the phases between them take.
    most_s = max(limits.grace_s, limits.drain_s + 15) + 2 * limits.term_s + limits.kill_s + 15
    assert int(text["Service"]["TimeoutStopSec"]) > most_s


def test_the_users_own_unit_names_no_user_and_no_unit_of_the_system(tmp_path):
    text = made(tmp_path, "systemd_user")["unit_text"]
    assert "User=" not in text
    assert "network-online" not in text
    assert "WantedBy=default.target" in text


def test_no_secret_and_no_option_of_the_engine_is_in_it(tmp_path):
    text = made(tmp_path, environment={"HF_TOKEN": "secret-one"}, key_hash="0f1e")["unit_text"]
    assert "secret-one" not in text
    assert "0f1e" not in text
    assert "max-model-len" not in text


def test_it_is_known_again_as_this_instances(tmp_path):
    entry = made(tmp_path)
    assert systemctl.owner(entry["unit_text"]) == entry["dir"]
    assert systemd.unit_name(entry["request"]) == entry["unit"]
    assert systemctl.owner("[Unit]\nDescription=another\n") == ""


@given(st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=20))
def test_a_word_is_one_word_and_means_itself(word):
    quoted = unit.quoted(word)
    assert quoted[0] == quoted[-1] == '"'
    back = quoted[1:-1].replace("$$", "$").replace("%%", "%").replace('\\"', '"').replace("\\\\", "\\")
    assert back == word or "\\" in word


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("name", ["home", "ho me", "ho$HOME%h"])
@pytest.mark.parametrize("supervisor", ["systemd", "systemd_user"])
def test_systemd_takes_it(tmp_path, name, supervisor):
    home = tmp_path / name
    home.mkdir()
    service = {**planned(), "supervisor": supervisor}
    entry = files.of_service(service, host(home, user="root", python=sys.executable))["instances"][0]
    path = tmp_path / entry["unit"]
    path.write_text(entry["unit_text"])
    scope = ["--user"] if supervisor == "systemd_user" else []
    done = subprocess.run(
        ["systemd-analyze", *scope, "verify", "--man=no", str(path)],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)},
    )
    mine = [line for line in done.stderr.splitlines() if entry["unit"] in line and "Failed to" not in line]
    assert mine == [], done.stderr
