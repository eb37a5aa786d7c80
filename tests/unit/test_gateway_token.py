"""The admin token in a home that belongs to somebody else: who can read it, told by the kernel."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.gateway import token
from ansible_collections.modelyard.core.plugins.module_utils.gateway.errors import GatewayError
from harness import ROOT

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be several users")
OWNER, OTHER = 4711, 4712
MAKE = (
    "import sys; sys.path.insert(0, 'collections'); from pathlib import Path\n"
    "from ansible_collections.modelyard.core.plugins.module_utils.gateway import token\n"
    "try:\n    token.make(Path(sys.argv[1]), Path(sys.argv[2]))\n"
    "except Exception as exc:\n    sys.exit(f'{type(exc).__name__}: {exc}')"
)


@pytest.fixture
def home() -> Iterator[Path]:
    """A home of OWNER with a gateway's folder. Not below pytest's own folder, which other users may not enter."""
    made = Path(tempfile.mkdtemp(prefix="modelyard-token-"))
    made.chmod(0o755)
    run = made / "services/a.gateway/instance-0/run"
    run.mkdir(parents=True)
    for path in (made, *made.rglob("*")):
        os.chown(path, OWNER, OWNER)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def path(home: Path) -> Path:
    return home / "services/a.gateway/instance-0/run/admin_token"


def by(uid: int, words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command as that user."""

    def become() -> None:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)

    return subprocess.run(words, preexec_fn=become, capture_output=True, text=True, cwd=ROOT, check=False)


def readers(path: Path) -> list[int]:
    """Who can read it, of root, OWNER and OTHER."""
    return [uid for uid in (0, OWNER, OTHER) if by(uid, ["cat", str(path)]).stdout]


def make_as_owner(path: Path, home: Path) -> subprocess.CompletedProcess[str]:
    # A Python that other users may run; a virtual environment can lie below root's home.
    return by(OWNER, ["/usr/bin/python3", "-B", "-c", MAKE, str(path), str(home)])


def test_root_makes_it_for_the_owner_of_the_home(home: Path, path: Path) -> None:
    token.make(path, home)
    assert readers(path) == [0, OWNER]
    before = path.read_text()
    # The owner goes on with the same one, and so does root after that.
    assert make_as_owner(path, home).returncode == 0
    token.make(path, home)
    assert (path.read_text(), readers(path)) == (before, [0, OWNER])


def test_root_goes_on_with_the_one_that_the_owner_made(home: Path, path: Path) -> None:
    assert make_as_owner(path, home).returncode == 0
    assert readers(path) == [0, OWNER]
    before = path.read_text()
    token.make(path, home)
    assert (path.read_text(), readers(path)) == (before, [0, OWNER])


def test_one_that_root_left_to_itself_is_handed_over_or_made_anew(home: Path, path: Path) -> None:
    path.write_text("left-by-an-earlier-version\n")
    path.chmod(0o600)
    assert readers(path) == [0]
    # The owner cannot read it, and may replace what lies in a folder of his.
    assert make_as_owner(path, home).returncode == 0
    assert (readers(path), path.read_text().startswith("left")) == ([0, OWNER], False)
    os.chown(path, 0, 0)
    token.make(path, home)
    assert readers(path) == [0, OWNER]


def test_a_link_that_somebody_has_put_there_is_not_followed(home: Path, path: Path, tmp_path: Path) -> None:
    target = tmp_path / "of-root"
    target.write_text("secret\n")
    path.symlink_to(target)
    token.make(path, home)
    assert (target.read_text(), target.stat().st_uid) == ("secret\n", 0)
    assert not path.is_symlink()
    assert readers(path) == [0, OWNER]


def test_where_this_user_may_write_nothing_it_is_said_who_may(home: Path, path: Path) -> None:
    for folder in (path.parent, path.parent.parent):
        os.chown(folder, OTHER, OTHER)
    done = make_as_owner(path, home)
    assert done.returncode == 1
    assert f"GatewayError: the admin token {path} cannot be made: Permission denied. Deploy as {OWNER}, or as root" in done.stderr
    with pytest.raises(GatewayError, match="cannot be made: No such file"):
        token.make(home / "nowhere/token", home)
