"""Hygon's driver and DTK on a private root with simulated cards, from stand-ins for the vendor's archive and installer."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import http.server
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import tables
from ansible_collections.modelyard.core.plugins.module_utils.process import dtk
from harness import BIN, ROOT
from simulators.install import install

ENV = "export ROCM_PATH=/opt/dtk\nexport PATH=$ROCM_PATH/bin:$PATH\n"
Look = Callable[..., dtk.Outcome]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root changes a driver or /opt")


def archive(folder: Path, release: str = "26.04", env: str = ENV, said: str = "") -> Path:
    """A DTK as far as it matters: a program, a link, a version file, env.sh; modes as nobody should keep them."""
    path = folder / f"DTK-{release}-Ubuntu22.04-x86_64.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, text in {"bin/hipcc": "#!/bin/sh\n", ".dtk_version": f"DTK-{said or release}\n", "env.sh": env}.items():
            entry = tarfile.TarInfo(f"dtk-{release}/{name}")
            entry.size, entry.mode, entry.uid, entry.uname = len(text), 0o6777, 4711, "builder"
            tar.addfile(entry, io.BytesIO(text.encode()))
        link = tarfile.TarInfo(f"dtk-{release}/bin/hcc")
        link.type, link.linkname = tarfile.SYMTYPE, "hipcc"
        tar.addfile(link)
    return path


def sums(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A server with eight K100_AI and driver 6.3, and an /opt."""
    os.umask(0o022)
    install(tmp_path / "root", "8xk100ai")
    (tmp_path / "root/opt").mkdir(exist_ok=True)
    return tmp_path / "root"


@pytest.fixture
def change(tmp_path: Path, root: Path) -> Look:
    """Run a change there; what is not named is not wanted."""

    def run(check_mode: bool = False, **args: Any) -> dtk.Outcome:
        base: dict[str, Any] = {"home": str(tmp_path / "home"), "host": "box", "backends": {"hygon": tables.backend("hygon")}}
        base |= {"sysroot": str(root), "tool_path": [str(tmp_path / "bin")], "state": "installed", "dtk": "26.04", "limit_s": 20}
        base |= dict.fromkeys(("tarball", "sha256", "package", "package_sha256"), "") | {"answers": [], "users": []}
        return dtk.Change({**base, **args}).run(check_mode)

    return run


def kinds(outcome: dtk.Outcome) -> list[str]:
    return [step.kind for step in outcome.steps]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def told(outcome: dtk.Outcome) -> list[tuple[str, str]]:
    return [(finding["id"], finding["what"]) for finding in outcome.findings]


def test_a_dtk_is_unpacked_beside_others_and_pointed_to_when_it_is_whole(tmp_path: Path, root: Path, change: Look) -> None:
    tarball = archive(tmp_path)
    wanted = {"tarball": str(tarball), "sha256": sums(tarball)}
    assert (kinds(change(check_mode=True, **wanted)), names(root / "opt")) == (["unpack", "point"], ["hyhal"])
    # What an interrupted run has left counts nothing and goes.
    (root / "opt/.dtk-26.04.unpacking/dtk-26.04/bin").mkdir(parents=True)
    done = change(**wanted)
    assert (told(done), kinds(done), done.done) == ([], ["unpack", "point"], True)
    assert names(root / "opt") == ["dtk", "dtk-26.04", "hyhal"]
    assert (root / "opt/dtk").readlink() == Path("dtk-26.04")
    program = root / "opt/dtk/bin/hcc"
    assert (program.stat().st_mode & 0o7777, program.stat().st_uid) == (0o755, os.geteuid())
    again = change(**wanted)
    assert (told(again), again.steps, again.done) == ([], [], False)
    # Another release beside it; /opt/dtk moves only when it is pinned, and not from under a program.
    older = archive(tmp_path, "25.04")
    wanted = {"tarball": str(older), "sha256": sums(older), "dtk": "25.04"}
    assert kinds(change(**wanted)) == ["unpack"]
    assert (root / "opt/dtk").readlink() == Path("dtk-26.04")
    running = subprocess.Popen([sys.executable, "-c", MAPPED, str(root / "opt/dtk-26.04/bin/hipcc")], stdout=subprocess.PIPE)
    try:
        assert running.stdout
        running.stdout.readline()
        ((id, what),) = told(change(state="pinned", **wanted))
        assert (id, f"pid {running.pid} of user " in what) == ("DT-IN-USE", True)
    finally:
        running.kill()
        running.wait()
        running.stdout.close()
    assert kinds(change(state="pinned", **wanted)) == ["point"]
    assert (root / "opt/dtk").readlink() == Path("dtk-25.04")


MAPPED = """
import mmap, sys, time
with open(sys.argv[1], "rb") as file:
    kept = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
print("there", flush=True)
time.sleep(60)
"""


def test_what_is_wrong_with_a_file_is_told_before_anything_is_changed(tmp_path: Path, root: Path, change: Look) -> None:
    tarball = archive(tmp_path)
    right, before = sums(tarball), names(root / "opt")
    assert told(change(tarball=str(tarball), sha256="0" * 64)) == [
        ("DT-CHECKSUM", f"its SHA-256 is {right}, wanted is {'0' * 64}")
    ]
    tarball.write_bytes(tarball.read_bytes()[:100])
    ((id, what),) = told(change(tarball=str(tarball), sha256=sums(tarball)))
    assert (id, "it cannot be read to its end" in what) == ("DT-TARBALL", True)
    tarball.chmod(0o666)
    ((id, what),) = told(change(tarball=str(tarball), sha256=sums(tarball)))[:1]
    assert (id, "root does not take it from there" in what) == ("DT-FILE", True)
    gone = tmp_path / "gone/DTK-26.04.tar.gz"
    assert told(change(tarball=str(gone), sha256=right)) == [("DT-FILE", "it cannot be read: No such file or directory")]
    # It does not say itself what its name says, or its env.sh never ends.
    tarball.chmod(0o644)
    other = archive(tmp_path, said="25.04")
    ((id, what),) = told(change(tarball=str(other), sha256=sums(other)))
    assert (id, "it says that it is DTK 25.04, and 26.04 is wanted" in what) == ("DT-FAILED", True)
    assert names(root / "opt") == before
    ends = archive(tmp_path, env="exit 1\n")
    ((id, what),) = told(change(tarball=str(ends), sha256=sums(ends)))
    assert (id, "/opt/dtk was not changed" in what) == ("DT-FAILED", True)
    assert not (root / "opt/dtk").exists()


def test_two_at_once_are_one(tmp_path: Path, root: Path, change: Look) -> None:
    tarball = archive(tmp_path)
    handle = os.open(root / "opt", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        ((id, what),) = told(change(tarball=str(tarball), sha256=sums(tarball)))
    finally:
        os.close(handle)
    assert (id, "another run is unpacking" in what) == ("DT-FAILED", True)
    assert not (root / "opt/dtk").exists()


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[str]:
    """A mirror that knows ranges as far as this needs it: it gives the rest of a file."""
    folder = tmp_path

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = (folder / self.path.rpartition("/")[2]).read_bytes()
            first = int((self.headers.get("Range") or "bytes=0-")[6:-1])
            self.server.asked.append(first)  # type: ignore[attr-defined]
            self.send_response(206 if first else 200)
            self.send_header("Content-Length", str(len(content) - first))
            self.end_headers()
            self.wfile.write(content[first:])

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked = []  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    assert server.asked == [100, 0], "it goes on where it was broken off, and what was wrong is fetched anew"  # type: ignore[attr-defined]


def test_a_mirror_is_gone_on_with_and_what_it_gave_wrongly_is_not_kept(
    tmp_path: Path, root: Path, change: Look, mirror: str
) -> None:
    tarball = archive(tmp_path)
    wanted = {"tarball": f"{mirror}/{tarball.name}", "sha256": sums(tarball)}
    assert kinds(change(check_mode=True, **wanted)) == ["unpack", "point"]
    cache = root / "var/cache/modelyard"
    assert not cache.exists()
    cache.mkdir(parents=True)
    (cache / f"{tarball.name}.part").write_bytes(b"x" * 100)
    assert told(change(**wanted))[0][0] == "DT-CHECKSUM"
    assert names(cache) == []
    assert (told(change(**wanted)), names(cache)) == ([], [tarball.name])


INSTALLER = """#!/bin/bash
read -r first; read -r second
echo "hymgr.cfg: $first, vbios: $second"
[ "$first" = y ] || exit 3
mkdir -p "{folder}" && printf '\\0version=6.3.16-V1.1.0a\\0' | gzip > "{folder}/hycu.ko.gz"
echo "hycu.ko.gz:" > "{folder}/modules.dep"
"""


def test_the_vendors_installer_is_run_once_and_what_came_of_it_is_looked_at(tmp_path: Path, root: Path, change: Look) -> None:
    modules = root / "lib/modules" / os.uname().release
    (modules / "build").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    for name in ("gcc", "g++", "make", "cmake", "automake", "autoconf", "m4", "lspci"):
        (tmp_path / "bin" / name).symlink_to("/bin/true")
    package = tmp_path / "rock-6.3.16-V1.1.0a.run"
    package.write_text(INSTALLER.format(folder=modules), encoding="utf-8")
    wanted = {"package": str(package), "package_sha256": sums(package), "state": "pinned"}
    assert [id for id, _ in told(change(**wanted))] == ["DT-WANTED"]
    ((id, what),) = told(change(answers=["n", "n"], **wanted))
    assert (id, "ended with 3" in what) == ("DT-FAILED", True)
    assert "hymgr.cfg: n, vbios: n" in (root / "var/log/modelyard-hygon-driver.log").read_text(encoding="utf-8")
    done = change(answers=["y", "n"], **wanted)
    assert (told(done), kinds(done)) == ([], ["driver"])
    assert done.reload.endswith("is loaded, 6.3.16-V1.1.0a is installed")
    again = change(answers=["y", "n"], **wanted)
    assert (again.steps, again.reload) == ([], done.reload)


def test_the_playbook_shows_and_installs_when_it_is_asked_to(tmp_path: Path, root: Path) -> None:
    tarball = archive(tmp_path)
    common = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "modelyard_home": str(tmp_path / "home"),
    }
    common |= {"modelyard_sysroot": str(root), "modelyard_stack": {"dtk": "26.04"}}
    common |= {"hygon_dtk_tarball": str(tarball), "hygon_dtk_sha256": sums(tarball)}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": {"dcus": common}}}), encoding="utf-8")

    def play(*words: str) -> str:
        command = [str(BIN / "ansible-playbook"), "-i", str(tmp_path / "hosts.json"), "playbooks/stack.yml", *words]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    asked = ("-e", "hygon_dtk_state=installed")
    shown = play(*asked, "--check", "--diff")
    assert "would do  unpack: " in shown
    assert "+point: let /opt/dtk lead to DTK 26.04" in shown
    assert not (root / "opt/dtk").exists()
    assert "changed=1" in play(*asked)
    assert (root / "opt/dtk").readlink() == Path("dtk-26.04")


def test_a_disk_that_gets_full_leaves_nothing_behind(
    tmp_path: Path, root: Path, change: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    tarball = archive(tmp_path)
    extract = tarfile.TarFile.extract

    def until_it_is_full(self: tarfile.TarFile, member: tarfile.TarInfo, *args: Any, **more: Any) -> None:
        if member.name.endswith("env.sh"):
            raise OSError(errno.ENOSPC, "No space left on device")
        extract(self, member, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(tarfile.TarFile, "extract", until_it_is_full)
        ((id, what),) = told(change(tarball=str(tarball), sha256=sums(tarball)))
    assert (id, "No space left on device; done before: nothing" in what) == ("DT-FAILED", True)
    assert names(root / "opt") == ["hyhal"]
    assert told(change(tarball=str(tarball), sha256=sums(tarball))) == []
