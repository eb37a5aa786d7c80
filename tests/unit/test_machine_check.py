from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections import namedtuple

import pytest
from harness import ROOT

SCRIPT = ROOT / "tools" / "machine_check.py"


@pytest.fixture
def check():
    spec = importlib.util.spec_from_file_location("machine_check", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def no_library(name):
    raise OSError(f"{name}: cannot open shared object file")


def test_all_that_is_missing_is_said_at_once_in_plain_words(check, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    usage = namedtuple("usage", "total used free")
    version = namedtuple("version", "major minor micro")
    monkeypatch.setattr(check.shutil, "disk_usage", lambda _: usage(10**12, 10**12, 100 * 2**20))
    monkeypatch.setattr(check, "available_memory_mib", lambda: 900)
    monkeypatch.setattr(check.os, "sched_getaffinity", lambda _: {0})
    monkeypatch.setattr(check.sys, "version_info", version(3, 9, 1))
    monkeypatch.setattr(check.ctypes, "CDLL", no_library)
    monkeypatch.setattr(check.shutil, "which", lambda _: None)
    monkeypatch.setattr(check.sys, "argv", ["machine_check.py", "demo"])
    with pytest.raises(SystemExit) as ended:
        check.main()
    assert ended.value.code == 1
    said = capsys.readouterr().out
    assert "This machine cannot run `make demo` yet:" in said
    for words in (
        "3.11, 3.12 or 3.13 is needed",
        "100 MiB are free on this disk, about 6000 are needed",
        "900 MiB of memory are free, about 5400 are needed",
        "there is one CPU core",
        "apt-get install libnuma1",
        "apt-get install g++",
        "Nothing was changed.",
    ):
        assert words in said


def test_a_machine_that_can_is_let_through_without_a_word(check, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(check.shutil, "disk_usage", lambda _: usage(10**12, 0, 10**12))
    monkeypatch.setattr(check, "available_memory_mib", lambda: 16000)
    monkeypatch.setattr(check.os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(check.ctypes, "CDLL", lambda _: None)
    monkeypatch.setattr(check.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(check.sys, "argv", ["machine_check.py", "test"])
    check.main()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["python3.6", "python3.7", "python3.8", "python3.9"])
def test_an_old_python_gets_the_plain_words_and_no_traceback(name):
    program = shutil.which(name)
    old = program and subprocess.run([program, "-c", ""], check=False).returncode == 0
    # Where none is installed, what an old one would choke on is looked for instead: nothing newer than Python 3.6 in the text.
    if not old:
        text = SCRIPT.read_text(encoding="utf-8")
        assert not any(new in text for new in (":= ", 'f"', "from __future__ import annotations", "match "))
        return
    said = subprocess.run([program, str(SCRIPT), "demo"], capture_output=True, text=True, check=False)
    assert said.returncode == 1
    assert "3.11, 3.12 or 3.13 is needed" in said.stdout
    assert "Traceback" not in said.stderr
    assert sys.version_info >= (3, 11)


@pytest.mark.parametrize(
    ("purpose", "user", "said"), [("test", 0, []), ("test", 1000, ["g++", "libnuma"]), ("demo", 0, ["g++", "libnuma"])]
)
def test_what_the_tests_install_themselves_stops_nobody(check, monkeypatch, purpose, user, said):
    monkeypatch.setattr(check.os, "geteuid", lambda: user)
    monkeypatch.setattr(check.shutil, "which", lambda program: None if program == "g++" else f"/usr/bin/{program}")
    monkeypatch.setattr(check.ctypes, "CDLL", no_library)
    found = check.findings(purpose)
    assert [word for word in ("g++", "libnuma") if any(word in text for text in found)] == said
