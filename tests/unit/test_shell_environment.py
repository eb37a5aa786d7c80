from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.survey import proxies, shell_environment, shell_text
from hypothesis import example, given
from hypothesis import strategies as st


@pytest.fixture
def open_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        yield listener.getsockname()[1]


@pytest.fixture
def closed_port():
    with socket.socket() as bound:  # bound and not listening: nobody else can take it, and it refuses
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.fixture
def silent_ports():
    # The queue of a listener that accepts nothing is full, so a further connection is neither taken nor refused.
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in range(3):
            listener = stack.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            ports.append(listener.getsockname()[1])
            for _ in range(3):
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(listener.getsockname())
        yield ports


def home_with(folder, **files):
    for name, text in files.items():
        (folder / f".{name}").write_text(text, encoding="utf-8")
    return str(folder)


def only_home(environ, home, limit_s=1.0):
    return shell_environment.look(environ, home, ("~/.profile", "~/.bashrc", "~/.zshrc"), limit_s)


def test_a_dead_proxy_of_a_shell_profile_is_found_with_its_file(tmp_path, closed_port):
    home = home_with(tmp_path, bashrc=f"# proxy\nexport https_proxy=http://127.0.0.1:{closed_port}\n")
    assert only_home({}, home)["proxies"] == [
        {
            "variable": "https_proxy",
            "value": f"http://127.0.0.1:{closed_port}",
            "source": f"{home}/.bashrc",
            "host": "127.0.0.1",
            "port": closed_port,
            "answers": False,
            "why": "connection refused",
        }
    ]


def test_a_proxy_of_the_session_that_answers(tmp_path, open_port):
    found = only_home({"HTTP_PROXY": f"127.0.0.1:{open_port}", "no_proxy": "localhost", "https_proxy": ""}, str(tmp_path))
    assert [(p["variable"], p["source"], p["answers"], p["why"]) for p in found["proxies"]] == [
        ("HTTP_PROXY", "environment of the session", True, "")
    ]


def test_silent_proxies_cost_the_limit_once(tmp_path, silent_ports):
    names = ("http_proxy", "https_proxy", "all_proxy")
    environ = {name: f"http://127.0.0.1:{port}" for name, port in zip(names, silent_ports, strict=True)}
    began = time.monotonic()
    found = only_home(environ, str(tmp_path), limit_s=0.8)["proxies"]
    assert 0.8 <= time.monotonic() - began < 2
    assert [(p["answers"], p["why"]) for p in found] == [(False, "timed out")] * 3


def test_a_silent_name_server_costs_the_limit_and_no_more(tmp_path, monkeypatch):
    asked = threading.Event()
    done = threading.Event()

    def slow(*_, **__):
        asked.set()
        done.wait(20)
        raise socket.gaierror(socket.EAI_NONAME, "x")

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    began = time.monotonic()
    (found,) = only_home({"http_proxy": "http://proxy.example:3128"}, str(tmp_path), limit_s=0.2)["proxies"]
    took = time.monotonic() - began
    done.set()
    assert asked.is_set() and took < 2
    assert (found["answers"], found["why"]) == (False, "timed out")


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "name not known"),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), "no answer from the name server"),
        (OSError(113, "No route to host"), "no route to host"),
        (UnicodeError("label too long"), "name not known"),
        (OSError(), "failed"),
    ],
)
def test_what_an_attempt_ends_with(tmp_path, monkeypatch, error, why):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    (found,) = only_home({"http_proxy": "http://proxy.example:3128"}, str(tmp_path))["proxies"]
    assert (found["answers"], found["why"]) == (False, why)


def test_each_place_is_asked_once_and_at_most_eight(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(proxies, "_connect", lambda place, _, whys: (asked.append(place), whys.update({place: ""})))
    lines = [f"export http_proxy=http://h{n}:1 https_proxy=h{n}:1 # proxy" for n in range(10)]
    files = []
    for n, line in enumerate(lines):
        (tmp_path / f"{n}.sh").write_text(line, encoding="utf-8")
        files.append(str(tmp_path / f"{n}.sh"))
    found = shell_environment.look({}, "", files)["proxies"]
    assert sorted(asked) == [(f"h{n}", 1) for n in range(8)]
    assert [p["answers"] for p in found] == [True] * 16 + [None] * 4
    assert {p["why"] for p in found[16:]} == {"not asked: there are more than 8 proxies"}


def test_where_no_thread_may_be_started_it_is_asked_all_the_same(tmp_path, monkeypatch, closed_port):
    def refuse(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    (found,) = only_home({"http_proxy": f"http://127.0.0.1:{closed_port}"}, str(tmp_path))["proxies"]
    assert found["why"] == "connection refused"


def test_an_empty_list_of_visible_cards_is_kept_as_empty(tmp_path):
    home = home_with(tmp_path, profile='export CUDA_VISIBLE_DEVICES=""\n', zshrc="HIP_VISIBLE_DEVICES=0,1\n")
    found = only_home({"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "all", "PATH": "/bin"}, home)
    assert [(v["variable"], v["value"], v["source"]) for v in found["visibility"]] == [
        ("CUDA_VISIBLE_DEVICES", "", "environment of the session"),
        ("NVIDIA_VISIBLE_DEVICES", "all", "environment of the session"),
        ("CUDA_VISIBLE_DEVICES", "", f"{home}/.profile"),
        ("HIP_VISIBLE_DEVICES", "0,1", f"{home}/.zshrc"),
    ]


# Each of these files leaves the variable X as bash leaves it; None: not set at all. Bash itself is asked below.
SHELL = [
    ("export X=a", "a"),
    ("X=a", "a"),
    ("X='a b'", "a b"),
    ('X="a b"', "a b"),
    ("X=", ""),
    ('export X=""', ""),
    ("X=a # X=b", "a"),
    ("X=a#b", "a#b"),
    ("# export X=a", None),
    ("  \texport   X=a ;  ", "a"),
    ("export Y=1 X=a Z=2", "a"),
    ("Y=a; X=$Y", "a"),
    ('Y=a; export X="${Y}b"', "ab"),
    ("Y=a; X='$Y'", "$Y"),
    ('Y=a; X="\\$Y"', "$Y"),
    ("X=a\\ b", "a b"),
    ("X=a\\\nb", "ab"),
    ("X=a; X=b", "b"),
    ("X=a; X+=b", "ab"),
    ("X=a; unset X", None),
    ("X=a; unset -v Y X", None),
    ("X=a; unset -f X", "a"),
    ("export X=a; export -n X", None),
    ("declare -x X=a", "a"),
    ("export X", None),
    ("X=a true", None),
    ("env X=a true", None),
    ("echo X=a", None),
    ("true && X=a", "a"),
    ("false || export X=a", "a"),
    ("if true; then X=a; fi", "a"),
    ("if true\nthen\n  export X=a\nfi", "a"),
    ("case b in\n  a) X=1;;\n  b) X=2;;\nesac", "2"),
    ("case b in (b) X=2;; esac", "2"),
    ("for i in 1; do X=a; done", "a"),
    ("(case b in b) X=a;; esac; X=b)\nY=1", None),
    ("case b in\n(b) case c in c) X=a;; esac;;\nesac\nX=${X}b", "ab"),
    ("{ X=a; }", "a"),
    ("if true; then { X=a; }; fi; Y=1", "a"),
    ("(X=a)", None),
    ("( true; X=a )\nY=1", None),
    ("f() { X=a; }", None),
    ("f() {\n  export X=a\n}", None),
    ("f()\n{\n  export X=a\n}\nX=b", "b"),
    ("function f { X=a; }", None),
    ("function f\n{\nX=a\n}", None),
    ("function f() {\n X=a\n}\nX=c", "c"),
    ("f() ( X=a )", None),
    ("f() { if true; then { X=a; }; fi; X=b; }", None),
    ("f() { case a in a) X=1;; esac; X=2; }; X=3", "3"),
    ("f () { echo '}'; X=a; }", None),
    ("f() { g() { X=a; }; X=b; }; Y=1", None),
    ("alias p='export X=a'", None),
    ('echo "\nX=a\n"', None),
    ("echo 'it is'\nX=a", "a"),
    ("cat <<EOF >/dev/null\nX=a it's\nEOF\nX=b", "b"),
    ("cat <<-'E' >/dev/null\n\tX=a \"\n\tE\nX=b", "b"),
    ("cat <<< X=a >/dev/null", None),
    ("export X=a >/dev/null 2>&1", "a"),
    ("X=a >/dev/null", "a"),
    ("X=a 2>/dev/null echo b >/dev/null", None),
    (">/dev/null X=a", "a"),
    ("export X=a &>/dev/null", "a"),
    ("export Y=3 X=a>>/dev/null 2>&1 Z=b", "a"),
    ("Y=$(echo 'X=a'; echo b)\nX=c", "c"),
    ("[[ a =~ ^(a|b)$ ]] && X=a", "a"),
    ("if [ -n '' ]; then Y=1; fi; X=\"a\"'b'c", "abc"),
    ("X=(1 2)", None),
    ("arr=()\nX=a", "a"),
    ("X=a\r", "a"),
]
#: What bash tells otherwise, and why: `export -n` leaves a variable of the shell, an array is one, bash keeps \r.
NOT_BASH = ("export X=a; export -n X", "X=(1 2)", "X=a\r")


@pytest.mark.parametrize(("text", "value"), SHELL)
def test_what_a_shell_file_sets(text, value):
    found = shell_text.assignments("/x/.bashrc", text, {}).get("X")
    assert (None if found is None else found.text) == value
    assert found is None or found.known


def test_bash_agrees(tmp_path):
    texts = [text for text, _ in SHELL if text not in NOT_BASH]
    for number, text in enumerate(texts):
        (tmp_path / str(number)).write_text(text, encoding="utf-8")
    script = (
        f'for n in $(seq 0 {len(texts) - 1}); do (. "./$n" >/dev/null 2>&1; '
        'if [ -n "${X+x}" ]; then printf "%s\\0" "$X"; else printf "not set\\0"; fi); done'
    )
    environ = {"PATH": os.environ["PATH"]}
    done = subprocess.run(["bash", "--norc", "-c", script], cwd=tmp_path, env=environ, capture_output=True, check=True)
    said = done.stdout.decode().split("\0")[:-1]
    expected = [("not set" if value is None else value) for text, value in SHELL if text not in NOT_BASH]
    assert dict(zip(texts, said, strict=True)) == dict(zip(texts, expected, strict=True))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("export http_proxy=http://${hostip}:7890", "http://${hostip}:7890"),
        ("hostip=$(ip route | awk '{print $3}')\nexport http_proxy=http://$hostip:7890", "http://$hostip:7890"),
        ("http_proxy=`cat /etc/p`", "`cat /etc/p`"),
        ("http_proxy=${http_proxy:-http://a:1}", "${http_proxy:-http://a:1}"),
        ("http_proxy=http://$USER_NAME:$PASS@proxy:3128", "http://$USER_NAME:***@proxy:3128"),
    ],
)
def test_what_only_a_running_shell_knows_is_shown_and_not_asked(tmp_path, text, shown):
    (found,) = only_home({}, home_with(tmp_path, bashrc=text))["proxies"]
    assert (found["value"], found["host"], found["port"], found["answers"]) == (shown, "", 0, None)
    assert found["why"] == "not asked: only a running shell knows the whole value"


def test_variables_of_the_session_are_known(tmp_path, open_port):
    home = home_with(tmp_path, bashrc="export http_proxy=http://127.0.0.1:$PORT_OF_PROXY\n")
    (found,) = only_home({"PORT_OF_PROXY": str(open_port)}, home)["proxies"]
    assert (found["port"], found["answers"]) == (open_port, True)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ("http://127.0.0.1:7897", ("127.0.0.1", 7897)),
        ("http://127.0.0.1:7897/", ("127.0.0.1", 7897)),
        ("127.0.0.1:7897", ("127.0.0.1", 7897)),
        ("socks5h://user:pass@proxy.example:1080", ("proxy.example", 1080)),
        ("http://user:p@ss/w:1@proxy:3128", ("proxy", 3128)),
        ("http://[::1]:3128", ("::1", 3128)),
        ("http://proxy", ("proxy", 80)),
        ("HTTPS://proxy", ("proxy", 443)),
        ("socks5://proxy", ("proxy", 1080)),
        (" http://proxy:1 ", ("proxy", 1)),
        ("proxy", ("proxy", 0)),
        ("http://proxy:99999", ("proxy", 0)),
        ("http://proxy:0", ("proxy", 0)),
        ("http://proxy:port", ("", 0)),
        ("http://", ("", 0)),
        ("", ("", 0)),
        ("http://a b:1", ("", 0)),
        ("http://a:1\nb", ("", 0)),
        ("a" * 3000 + ":1", ("", 0)),
    ],
)
def test_host_and_port(value, place):
    assert proxies.address(value) == place


def test_a_value_without_a_port_is_not_asked(tmp_path):
    (found,) = only_home({"http_proxy": "proxy"}, str(tmp_path))["proxies"]
    assert (found["answers"], found["why"]) == (None, "not asked: the value names no host and port")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("http://user:secret@proxy:1", "http://user:***@proxy:1"),
        ("user:secret@proxy:1", "user:***@proxy:1"),
        ("http://token@proxy:1", "http://***@proxy:1"),
        ("http://user:se/cr@et@proxy:1", "http://user:***@proxy:1"),
        ("http://us/er:secret@proxy:1", "http://***@proxy:1"),
        ("http://user:secr", "http://user:***"),
        ("user:secr", "user:***"),
        ("http://user:12secr", "http://user:***"),
        ("http://${PERSON}:secr", "http://${PERSON}:***"),
        ("http://proxy:3128", "http://proxy:3128"),
        ("http://proxy:3128/a", "http://proxy:3128/a"),
        ("http://[fe80::1]:3128", "http://[fe80::1]:3128"),
        ("proxy:3128", "proxy:3128"),
        ("http://proxy:$PORT", "http://proxy:$PORT"),
        ("a" * 2001, "***"),
    ],
)
def test_a_login_is_masked(value, shown):
    assert proxies.masked(value) == shown


@given(password=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=6, max_size=30))
@example(password="a&b;c|d'e")
@example(password='p"a$x`y`z')
@example(password="http://a@b:1")
def test_no_password_is_shown_whatever_is_in_it(password):
    value = f"http://person:{password}@127.0.0.1:1"
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for name, text in (
            ("a.sh", f"export http_proxy={shlex.quote(value)}"),
            ("b.conf", f"http_proxy={value}"),
            ("pip.conf", f"[global]\nproxy = {value}"),
        ):
            (Path(folder) / name).write_text(text, encoding="utf-8")
            files.append(f"{folder}/{name}")
        found = shell_environment.look({"http_proxy": value}, "", files, 0.0001)
    assert len(found["proxies"]) == 4
    assert [p["value"] for p in found["proxies"] if password in p["value"]] == []
    assert [p for p in found["proxies"] if password in p["host"] or password in p["why"]] == []


PIECES = [*"\n ;&|(){}'\"`$\\<>=#X", "f()", "<<E", "$(", "export ", "X=a"]


@given(text=st.text(max_size=200) | st.lists(st.sampled_from(PIECES)).map("".join))
@example(text="X='")
@example(text='X="\\')
@example(text="cat <<E\nX=a")
@example(text="}}}{{{)))(((")
@example(text="f() {")
def test_any_text_is_read_without_an_error(text):
    for path in ("/x/.bashrc", "/etc/environment", "/x/pip.conf", "/x/a.conf"):
        for value in shell_text.assignments(path, text, {}).values():
            proxies.address(value.text)
            assert isinstance(proxies.masked(value.text), str)


@given(value=st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=40))
def test_what_is_quoted_comes_back_as_it_was(value):
    text = f"export Y=1\nexport X={shlex.quote(value)} Z=2\n"
    assert shell_text.assignments("/x/.bashrc", text, {})["X"] == shell_text.Value(value, True)


LONG = [
    "$(" * 60000,
    "<<E\n" * 40000,
    "'\"" * 60000,
    "X=a " * 40000,
    "(" * 200000,
    "`" * 99999,
    "a=" + " " * 250000,
    "1" * 250000,
]


@pytest.mark.parametrize("text", LONG, ids=range(len(LONG)))
def test_a_long_strange_file_takes_no_long_time(text):
    began = time.process_time()
    for path in ("/x/.bashrc", "/etc/environment", "/x/pip.conf"):
        shell_text.assignments(path, text, {})
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("environment", 'http_proxy="http://a:1"', "http://a:1"),
        ("environment", "export http_proxy=http://a:1", "http://a:1"),
        ("environment", "http_proxy=http://a:1  # the office", "http://a:1"),
        ("environment", "http_proxy=http://u:a&b;c(d@h:1", "http://u:***@h:1"),
        ("50-proxy.conf", "PORT=1\nhttp_proxy=http://a:${PORT}", "http://a:1"),
        ("50-proxy.conf", "#http_proxy=http://a:1", None),
        ("pip.conf", "[global]\nproxy = http://a:1\n", "http://a:1"),
        ("pip.conf", "[global]\nproxy: http://u:secret@a:1\n", "http://u:***@a:1"),
        ("pip.conf", "[global]\n# proxy = http://a:1\ntrusted-proxy = x\n", None),
    ],
)
def test_other_files_than_those_of_shells(tmp_path, monkeypatch, name, text, value):
    monkeypatch.setattr(proxies, "_connect", lambda place, _, whys: whys.update({place: ""}))
    (tmp_path / name).write_text(text, encoding="utf-8")
    found = shell_environment.look({}, "", (str(tmp_path / name),))["proxies"]
    assert [p["value"] for p in found] == ([] if value is None else [value])
    assert {p["variable"] for p in found} <= {"pip proxy" if name == "pip.conf" else "http_proxy"}


def test_all_the_files_of_a_home_are_looked_at_and_what_is_no_file_is_passed_by(tmp_path):
    names = [name for name in shell_environment.FILES if name.startswith("~/")]
    for name in names:
        path = tmp_path / name[2:].replace("*", "10-gpu")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("proxy = x\n" if path.name == "pip.conf" else "CUDA_VISIBLE_DEVICES=0\n", encoding="utf-8")
    (tmp_path / ".config/environment.d/README").write_text("CUDA_VISIBLE_DEVICES=1\n", encoding="utf-8")
    os.mkfifo(tmp_path / ".config/environment.d/pipe.conf")
    (tmp_path / ".config/environment.d/folder.conf").mkdir()
    found = shell_environment.look({}, str(tmp_path), names)
    assert sorted({x["source"] for x in found["visibility"] + found["proxies"]}) == sorted(
        str(tmp_path / name[2:].replace("*", "10-gpu")) for name in names
    )
    assert {v["value"] for v in found["visibility"]} == {"0"}
    assert found["not_readable"] == []


def test_without_a_home_only_the_files_of_the_system_are_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".bashrc").write_text("CUDA_VISIBLE_DEVICES=0\n", encoding="utf-8")
    assert shell_environment.look({}, "", ("~/.bashrc",))["visibility"] == []


def test_a_file_that_may_not_be_read_is_said(tmp_path, monkeypatch):
    def refuse(self, *_, **__):
        raise PermissionError(13, "Permission denied", str(self))

    home = home_with(tmp_path, profile="", bashrc="")
    monkeypatch.setattr(Path, "open", refuse)
    assert only_home({}, home)["not_readable"] == [f"{home}/.profile", f"{home}/.bashrc"]
    monkeypatch.setattr(Path, "iterdir", refuse)
    assert shell_environment.look({}, "", (f"{home}/x.d/*.sh",))["not_readable"] == [f"{home}/x.d"]


def test_nothing_of_a_file_is_run(tmp_path):
    home = home_with(tmp_path, bashrc=f"export http_proxy=$(touch {tmp_path}/ran)`touch {tmp_path}/ran`\n")
    assert len(only_home({}, home)["proxies"]) == 1
    assert not (tmp_path / "ran").exists()
