"""The status, the problems in words, the last minutes, the page and the command: all from the same state."""

import json
import re
from html.parser import HTMLParser

import pytest
from modelyard_gateway import page, status_command, words
from modelyard_gateway.status import ProcessFigures
from modelyard_gateway.table import rows
from unit.gateway.seen_gateway import Log, SeenGateway


def texts(state):
    return [f"{problem['level']}: {problem['text']}" for problem in state["problems"]]


def test_all_well():
    state = SeenGateway(8).all_up().later(60).status()
    assert (state["level"], state["summary"], state["problems"]) == ("ok", "All 8 backends take requests", [])
    assert state["gateway"]["uptime_s"] == 60.0
    assert state["gateway"]["started_at"] == "2023-11-14T22:13:20.000Z"
    assert state["time_at"] == "2023-11-14T22:14:20.000Z"
    assert json.loads(json.dumps(state)) == state


def test_a_refused_connection_is_named_with_since_and_why():
    gateway = SeenGateway(8).all_up()
    gateway.backends.failed(gateway.backends.all[3], "refused", "connection refused", gateway.now, gateway.unix)
    state = gateway.later(240).status()
    assert (state["level"], state["summary"]) == ("out", "7 of 8 backends take requests")
    assert texts(state) == ["out: qwen/3 is out for 4 min: connection refused"]
    assert state["backends"][3]["since_s"] == 240.0


def test_the_worst_comes_first_and_nothing_is_left_out():
    gateway = SeenGateway(5, per_backend_limit=4, queue_size=2).all_up()
    one, two, three, four, _five = gateway.backends.all
    for _ in range(3):
        gateway.backends.looked(three, "no answer in 2 s", gateway.now, gateway.unix)
    gateway.begin(0, 4)
    gateway.backends.drain(two)
    gateway.backends.moved(one, gateway.now, gateway.unix)
    gateway.later(130).backends.look_for_hung(gateway.now)
    four.state = "half_open"
    gateway.waiting, gateway.stopping = 2, True
    gateway.log = Log(problem="No space left on device", dropped=7)
    state = gateway.status(ProcessFigures(1, None, None, 1000, 1024))
    assert texts(state) == [
        "out: qwen/2 is out for 2 min: no answer in 2 s",
        "warn: The gateway is stopping: 4 requests in flight, no new ones are taken",
        "warn: The queue is full: 2 requests waiting, further ones get 429",
        "warn: 1000 of 1024 files and connections are open: raise the limit (ulimit -n) and start again",
        "warn: The result log cannot be written: No space left on device",
        "warn: 7 lines of the result log lost since the start",
        "warn: qwen/0 seems to hang: 4 requests in flight, no token for 2 min, though /health is well",
        "warn: qwen/3 is on trial for 2 min",
        "note: qwen/1 is drained and gets no requests until somebody says undrain",
    ]


def test_a_drain_is_a_note_and_says_what_still_runs():
    gateway = SeenGateway(2).all_up()
    gateway.begin(1, 3)
    gateway.backends.drain(gateway.backends.all[1])
    assert texts(gateway.status()) == ["note: qwen/1 is draining: 3 requests in flight, no new ones"]
    gateway.backends.failed(gateway.backends.all[1], "refused", "connection refused", 0.0, gateway.unix)
    assert gateway.status()["backends"][1]["word"] == "draining, out"
    assert gateway.status()["level"] == "note"


def test_nobody_there():
    gateway = SeenGateway(1).all_up()
    gateway.backends.drain(gateway.backends.all[0])
    state = gateway.status()
    assert (state["level"], state["summary"]) == ("out", "No backend takes requests")
    assert texts(state)[0] == "out: Clients get 503, because no backend takes requests"


def test_a_backend_that_is_not_looked_at_yet_is_not_called_up():
    state = SeenGateway(1).status()
    assert state["backends"][0]["word"] == "not looked at yet"
    assert texts(state) == ["warn: qwen/0 has not been looked at yet"]


def test_a_backend_that_leaves_the_configuration():
    gateway = SeenGateway(2).all_up()
    gateway.begin(1)
    gateway.backends.update(SeenGateway(1).settings, gateway.now, gateway.unix)
    assert texts(gateway.status()) == [
        "note: qwen/1 is no longer in the configuration and goes when it is free: 1 request in flight"
    ]


def test_failures_of_the_last_minutes_are_said_and_fade():
    gateway = SeenGateway(2).all_up()
    for _ in range(30):
        gateway.run(1)
    for _ in range(2):
        gateway.run(1, status=500)
    gateway.backends.all[1].errors.update(broken=4, client_gone=6)
    state = gateway.later(20).status()
    assert texts(state) == ["warn: qwen/1: 6 of 42 requests failed in the last 20 s (broken 4, server error 2)"]
    assert [row.failed for row in rows(state)] == ["0", "6 of 42 (broken 4, server error 2)"]
    assert (state["backends"][1]["level"], state["backends"][1]["word"]) == ("warn", "up, failing")
    for _ in range(30):
        gateway.later(15)
    state = gateway.status()
    assert state["problems"] == []
    assert state["backends"][1]["word"] == "up"
    assert state["backends"][1]["errors"] == {"server_error": 2, "broken": 4, "client_gone": 6}
    assert state["backends"][1]["recent"]["errors"] == {}


def test_clients_that_go_and_bad_requests_are_nobodys_fault():
    gateway = SeenGateway(1).all_up()
    for _ in range(20):
        gateway.run(0, status=400)
    gateway.backends.all[0].errors["client_gone"] = 50
    assert gateway.status()["problems"] == []


def test_latency_is_that_of_the_last_minutes():
    gateway = SeenGateway(1).all_up()
    for _ in range(1000):
        gateway.run(0, seconds=0.05)
    for _ in range(25):
        gateway.later(15)
    for _ in range(4):
        gateway.run(0, seconds=20.0)
    backend = gateway.status()["backends"][0]
    assert backend["duration_s"]["p50"] < 0.1
    assert 10 < backend["recent"]["duration_s"]["p50"] < 30
    assert (backend["served"], backend["recent"]["served"]) == (1004, 4)
    assert gateway.status()["recent_s"] == 300.0


def test_a_backend_that_came_back_with_new_counters_counts_from_zero():
    gateway = SeenGateway(2).all_up()
    for _ in range(5):
        gateway.run(1)
    for _ in range(25):
        gateway.later(15)
    gateway.backends.update(SeenGateway(1).settings, gateway.now, gateway.unix)
    gateway.backends.update(SeenGateway(2).settings, gateway.now, gateway.unix)
    gateway.run(1)
    assert gateway.status()["backends"][1]["recent"]["served"] == 1


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-1, "0 s"),
        (0.9, "0 s"),
        (99.9, "99 s"),
        (100, "1 min"),
        (240, "4 min"),
        (5999, "99 min"),
        (12_000, "3 h 20 min"),
        (273_600, "3 d 4 h"),
    ],
)
def test_span(seconds, said):
    assert words.span(seconds) == said


@pytest.mark.parametrize(("seconds", "said"), [(None, "-"), (0.0123, "12 ms"), (1.254, "1.25 s"), (75.4, "75 s")])
def test_latency(seconds, said):
    assert words.latency(seconds) == said


class Seen(HTMLParser):
    """What a person sees of a page, and whether each element that is opened is closed."""

    VOID = {"meta", "link", "wbr"}

    def __init__(self, text):
        super().__init__()
        self.open, self.texts, self.tags, self.attributes = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.texts.append(data)

    @property
    def text(self):
        return "".join(self.texts).replace("\u00a0", " ")


def test_the_page_tells_all_without_its_script():
    gateway = SeenGateway(3, per_backend_limit=4).all_up()
    gateway.begin(0, 2)
    gateway.backends.failed(gateway.backends.all[2], "refused", "connection refused", gateway.now, gateway.unix)
    gateway.backends.drain(gateway.backends.all[1])
    gateway.log = Log()
    seen = Seen(page.render(gateway.later(240).status()))
    for text in (
        "1 of 3 backends takes requests",
        "qwen/2 is out for 4 min: connection refused",
        "2 of 4",
        "drained",
        "undrain",
    ):
        assert text in seen.text
    assert seen.text.count("0 in all") == 5  # answers of all three, failures of two
    assert seen.text.count("1 in all") == 1
    assert seen.tags.count("tr") == 4
    actions = [value for name, value in seen.attributes if name == "action"]
    assert actions == ["drain?backend=qwen%2F0", "undrain?backend=qwen%2F1", "drain?backend=qwen%2F2"]


def test_words_of_others_are_no_markup_on_the_page():
    gateway = SeenGateway(names=["<b>&\"'x"]).all_up()
    gateway.backends.failed(gateway.backends.all[0], "refused", "<script>alert(1)</script> <!--live-->", 0.0, gateway.unix)
    text = page.render(gateway.status())
    seen = Seen(text)
    assert seen.tags.count("script") == 1
    assert "<script>alert(1)</script> <!--live-->" in seen.text
    assert "drain?backend=%3Cb%3E%26%22%27x" in [value for _name, value in seen.attributes]


def test_the_page_takes_nothing_from_elsewhere_and_its_hashes_are_right():
    text = page.render(SeenGateway().status())
    assert not re.search(r"""(src|href)=["'](?!data:,)|https?://|@import|url\(""", text)
    policy = page.HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert len(re.findall(r"'sha256-[A-Za-z0-9+/]{43}='", policy)) == 2


def test_the_command_shows_the_same_in_colour_only_on_a_terminal():
    gateway = SeenGateway(2).all_up()
    gateway.run(0)
    gateway.backends.failed(gateway.backends.all[1], "refused", "connection refused", 0.0, gateway.unix)
    state = gateway.later(30).status()
    plain = status_command.lines(state, colour=False)
    assert plain[:2] == ["1 of 2 backends takes requests", "  out   qwen/1 is out for 30 s: connection refused"]
    assert [line.split()[:3] for line in plain[3:5]] == [["qwen/0", "up", "0"], ["qwen/1", "out", "0"]]
    coloured = status_command.lines(state, colour=True)
    assert [re.sub(r"\x1b\[\d+m", "", line) for line in coloured] == plain
    assert coloured != plain
