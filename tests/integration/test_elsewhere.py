"""The playbooks as AWX and Semaphore play them: a copied project, an inventory elsewhere, a poor environment, nobody to ask."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from accepting import NAME
from cases import always
from harness import BIN, ROOT, Site

PARTS = ("playbooks", "roles", "collections", "filter_plugins", "ansible.cfg", "pyproject.toml")
#: Playbooks that a controller plays again and again on what runs, with what they print when all is well.
PLAYBOOKS = {"deploy": "changed=0 ", "preflight": NAME, "acceptance": f"pass  {NAME}/1 serial", "status": NAME}


def copied(to: Path) -> Path:
    """The project as a checkout of the controller has it, as far as playbooks read it."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    for name in [name for name in listed if name.startswith(PARTS)]:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, to / name)
    return to


def poor(home: Path) -> dict[str, str]:
    return {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(home), "ANSIBLE_NOCOLOR": "1"}


def run(words: list[str], cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=180
    )


def test_a_playbook_is_played_from_another_folder(accept_site: Site, tmp_path: Path) -> None:
    copy, elsewhere = copied(tmp_path / "project"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    words = [str(BIN / "ansible-playbook"), "-i", str(accept_site.inventory), str(copy / "playbooks/acceptance.yml")]
    done = run(words, elsewhere, {**poor(tmp_path), "ANSIBLE_CONFIG": str(copy / "ansible.cfg")})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert f"pass  {NAME}/1 serial" in done.stdout
    assert list(elsewhere.iterdir()) == []


@pytest.fixture(scope="module")
def data(accept_site: Site, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private_data_dir of ansible-runner: `project`, and an inventory that is a program, as AWX makes one."""
    folder = tmp_path_factory.mktemp("runner")
    copied(folder / "project")
    hosts = yaml.safe_load(accept_site.inventory.read_text(encoding="utf-8"))["all"]["hosts"]
    listed = {"all": {"hosts": list(hosts)}, "_meta": {"hostvars": {**hosts}}}
    (folder / "inventory").mkdir()
    program = folder / "inventory" / "hosts"
    program.write_text(f"#!{sys.executable}\nprint({json.dumps(json.dumps(listed))})\n", encoding="utf-8")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize("playbook", always(1, PLAYBOOKS))
def test_ansible_runner_plays_it_from_its_own_folder(data: Path, tmp_path: Path, playbook: str) -> None:
    before = {path for path in (data / "project").rglob("*") if "__pycache__" not in path.parts}
    words = [str(BIN / "ansible-runner"), "run", str(data), "-p", f"playbooks/{playbook}.yml", "--ident", playbook]
    done = run(words, Path("/"), poor(tmp_path))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert PLAYBOOKS[playbook] in done.stdout, done.stdout[-3000:]
    after = {path for path in (data / "project").rglob("*") if "__pycache__" not in path.parts}
    assert after == before, "nothing is written into the project"


def test_no_playbook_waits_for_a_person() -> None:
    asking = ("vars_prompt", "ansible.builtin.pause", "become_ask_pass", "/dev/tty")
    texts = [path for part in ("playbooks", "roles") for path in (ROOT / part).rglob("*.yml")]
    assert [(str(path), word) for path in texts for word in asking if word in path.read_text(encoding="utf-8")] == []
