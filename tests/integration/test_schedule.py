"""playbooks/schedule.yml with small programs in the place of crontab and systemctl. The real systemd-analyze reads the units."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from harness import BIN, ROOT

CRONTAB = """#!/bin/sh
case "$1" in -u) shift 2 ;; esac
case "$1" in
-l) cat {table} 2>/dev/null || {{ echo "no crontab for root" >&2; exit 1; }} ;;
*) grep -q broken "$1" && {{ echo "errors in crontab file" >&2; exit 1; }}; cp "$1" {table} ;;
esac
"""
MINE = "MAILTO=admin@example.org\n# my own\n5 4 * * * /usr/local/bin/backup --percent 50\\%\n"
Play = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    programs = tmp_path / "bin"
    programs.mkdir()
    made = tmp_path / "table"
    (programs / "crontab").write_text(CRONTAB.format(table=made), encoding="utf-8")
    (programs / "crontab").chmod(0o755)
    return made


@pytest.fixture
def play(tmp_path: Path, table: Path) -> Play:
    inventory = tmp_path / "inventory" / "lab" / "hosts.yml"
    inventory.parent.mkdir(parents=True)
    hosts = {"all": {"hosts": {"server1": {}}, "vars": {"ansible_become": True, "ansible_user": "llm"}}}
    inventory.write_text(yaml.safe_dump(hosts), encoding="utf-8")
    venv = tmp_path / "venv" / "bin"
    venv.mkdir(parents=True)
    (venv / "modelyard").write_text("#!/bin/sh\n", encoding="utf-8")
    (venv / "modelyard").chmod(0o755)

    def run(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        program = ["-e", f"__schedule_program={venv}/modelyard", "-e", f"ansible_python_interpreter={sys.executable}"]
        command = [str(BIN / "ansible-playbook"), "-i", str(inventory), "playbooks/schedule.yml", "--diff", *program, *words]
        env = {**os.environ, "PATH": f"{table.parent}/bin:{os.environ['PATH']}", "ANSIBLE_NOCOLOR": "1"}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=60)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    return run


def changed(done: subprocess.CompletedProcess[str]) -> bool:
    return "changed=1" in done.stdout


def test_a_line_of_cron_comes_changes_and_goes_among_the_lines_of_others(play: Play, table: Path) -> None:
    table.write_text(MINE, encoding="utf-8")
    shown = play("-e", "schedule_kind=cron", "--check")
    assert changed(shown)
    assert "+7 * * * * cd " in shown.stdout
    assert table.read_text(encoding="utf-8") == MINE
    assert changed(play("-e", "schedule_kind=cron"))
    text = table.read_text(encoding="utf-8")
    assert text.startswith(MINE)
    mark, line = text.removeprefix(MINE).splitlines()
    assert mark == "# modelyard-accept-lab: written by playbooks/schedule.yml, as is the next line"
    inventory = table.parent / "inventory/lab/hosts.yml"
    assert line.endswith(f"--inventory={inventory} --trigger timer --quiet --random-delay 300")
    assert line.startswith(f"7 * * * * cd {ROOT} && exec {table.parent}/venv/bin/modelyard accept ")
    assert not changed(play("-e", "schedule_kind=cron")), "a second run changes nothing"
    assert changed(
        play("-e", '{"schedule_kind": "cron", "schedule_depth": "quick", "schedule_arguments": ["--", "--forks", "5"]}')
    )
    assert table.read_text(encoding="utf-8").splitlines()[-1].endswith("--depth quick --quiet --random-delay 300 -- --forks 5")
    assert changed(play("-e", "schedule_state=absent"))
    assert table.read_text(encoding="utf-8") == MINE
    assert not changed(play("-e", "schedule_state=absent"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-e", '{"schedule_cron": "every day"}'), "schedule_cron 'every day' is no time of cron"),
        (("-e", "schedule_name=../x"), "schedule_name '../x' must be"),
        (("-e", "schedule_kind=systemd"), "schedule_kind is systemd, and systemd does not run here"),
        (("-e", "schedule_kind=upstart"), "upstart"),
        (("-e", "schedule_name=broken", "-e", "schedule_kind=cron"), "cron did not take the table: errors in crontab file"),
    ],
)
def test_what_cannot_be_scheduled_is_said_and_changes_nothing(play: Play, table: Path, words: tuple[str, ...], said: str) -> None:
    if "systemd" in said and Path("/run/systemd/system").is_dir():
        pytest.skip("systemd runs here")
    table.write_text(MINE, encoding="utf-8")
    done = play(*words, check=False)
    assert done.returncode != 0
    assert said in done.stdout + done.stderr
    assert table.read_text(encoding="utf-8") == MINE


def test_without_the_command_it_says_how_to_make_it(play: Play, table: Path) -> None:
    (table.parent / "venv/bin/modelyard").unlink()
    done = play(check=False)
    assert done.returncode != 0
    assert "run `make .venv/control` in the checkout" in done.stdout + done.stderr
    assert not table.exists()
