from __future__ import annotations

import base64
import copy
import hashlib
import re

import pytest
from report_page import Page, record

from modelyard.report import page

SHOWN = {
    "accepted": ("accepted", "history", ["load_users"], "previous_lab"),
    "failed_schema": ("failed_schema", "history", ["load_sweep", "load_users"], "previous"),
    "busy": ("busy", "history", [], "previous_lab"),
    "unreachable": ("unreachable", "", ["load_sweep"], ""),
}


def shown(name, **changed):
    run, history, loads, previous = SHOWN[name]
    made = {**record(run), **changed}
    return page(made, record(history) if history else [], [record(one) for one in loads], record(previous) if previous else None)


def many(hosts=100):
    """A run of many hosts with eight instances each; the last one failed, the one before was not reached."""
    good, bad = record("previous")["hosts"]["dcu1"], record("failed_schema")["hosts"]["dcu1"]
    run = record("failed_schema")
    run["hosts"] = {f"dcu{number}": copy.deepcopy(good) for number in range(1, hosts - 1)}
    run["hosts"][f"dcu{hosts - 1}"] = {"answer": "unreachable", "problem": "no route to host", "services": []}
    run["hosts"][f"dcu{hosts}"] = bad
    return run


@pytest.mark.parametrize("name", SHOWN)
def test_the_page_is_well_formed_and_asks_the_network_for_nothing(name):
    html = shown(name)
    found = Page(html)
    assert len(found.ids) == len(set(found.ids))
    tags = {tag for tag, _ in found.elements}
    assert not tags & {"script", "img", "iframe", "object", "embed", "form", "base", "video", "audio", "use", "image"}
    assert not any(attribute.startswith("on") or attribute in ("src", "style") for _, own in found.elements for attribute in own)
    links = [own["href"] for _, own in found.elements if "href" in own]
    assert all(re.fullmatch(r"data:,|\d{8}T\d{6}Z\.html", link) for link in links)
    style = re.search("<style>(.*?)</style>", html, re.DOTALL)[1]
    assert "@import" not in style and "url(" not in style


@pytest.mark.parametrize("name", SHOWN)
def test_the_policy_of_the_page_allows_its_own_style_alone(name):
    html = shown(name)
    policy = next(own["content"] for tag, own in Page(html).elements if own.get("http-equiv") == "Content-Security-Policy")
    style = re.search("<style>(.*?)</style>", html, re.DOTALL)[1]
    assert f"style-src 'sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}'" in policy
    assert "default-src 'none'" in policy and "unsafe" not in policy


@pytest.mark.parametrize("name", SHOWN)
def test_readers_of_screens_get_a_language_a_title_headings_and_heads_of_tables(name):
    found = Page(shown(name))
    assert ("html", {"lang": "en"}) in found.elements
    assert sum(1 for tag, _ in found.elements if tag == "title") > 0 and sum(1 for tag, _ in found.elements if tag == "h1") == 1
    assert all("scope" in own for tag, own in found.elements if tag == "th")
    for tag, own in found.elements:
        if tag == "svg" and own.get("role") == "img":
            assert set(own["aria-labelledby"].split()) <= set(found.ids)
        elif tag == "svg":
            assert own["aria-hidden"] == "true"


@pytest.mark.parametrize(
    ("name", "title", "words"),
    [
        (
            "accepted",
            "✓ Accepted: inventory/lab_4090, 2026-11-30 11:42 UTC",
            ["1 of 1 service on 1 host accepted", "Nothing differs."],
        ),
        (
            "failed_schema",
            "✕ Not accepted: inventory/dcu_k100ai, 2026-11-30 11:42 UTC",
            ["What to do next", "7 of 8 instances passed"],
        ),
        ("busy", "… Busy: not judged, and no failure: inventory/lab_4090, 2026-11-30 11:42 UTC", ["Restart nothing: it serves."]),
        ("unreachable", "? Not everything was reached: inventory/prod, 2026-11-30 11:42 UTC", ["No route to host", "first run"]),
    ],
)
def test_the_answer_stands_at_the_top_in_words_and_with_a_sign(name, title, words):
    found = Page(shown(name))
    assert found.texts("title")[0] == title
    assert found.texts("strong")[0] == title.partition(": inventory")[0]
    for one in words:
        assert one in found.text


def test_a_failure_says_what_was_seen_what_next_whether_a_restart_helps_and_where_the_evidence_is():
    found = Page(shown("failed_schema"))
    first = found.texts("li")[1]  # behind the words of the run
    assert first.startswith("✕ dcu1 minicpm-v-4.5/3 failed at schema the reply is no JSON")
    assert "next set engine.structured_outputs_config" in first
    assert "A restart is of use, once the evidence was read." in first
    assert "dcu1:/home/llm/modelyard/evidence/20261130T114214Z-minicpm-v-4.5-failed_schema" in first


def test_an_accepted_run_has_nothing_to_do_next():
    assert "What to do next" not in Page(shown("accepted")).text


def test_every_step_is_shown_with_its_time_and_what_was_seen():
    run = record("accepted")
    found = Page(shown("accepted"))
    for step in run["hosts"]["server1"]["services"][0]["steps"]:
        assert f"{step['id']} " in found.text and step["detail"] in found.text
    rows = [text for text in found.texts("tr") if "serial" in text]
    assert rows == ["✓ serial 9.71 20 of 20, median 0.48 s, longest 0.55 s"]


def test_the_same_complaint_of_several_instances_is_told_once():
    run = record("failed_schema")
    for step in run["hosts"]["dcu1"]["services"][0]["steps"]:
        if step["id"] == "image" and step["instance"] in (5, 6, 7):
            step.update(verdict="fail", passed=False, detail="no image")
    lines = [text for text in Page(page(run, [], [], None)).texts("li") if "/" in text.split()[1]]
    assert [line[:16] for line in lines] == ["✕ schema/3 the r", "✕ image/5-7 no i"]


def test_cards_of_which_nothing_is_known_are_not_shown():
    run = record("accepted")
    assert "2 x NVIDIA GeForce RTX 4090" in Page(page(run, [], [], None)).text
    run["hosts"]["server1"]["services"][0]["cards"] = [{"index": 0, "name": "core", "memory_used_mib": None}]
    assert "memory, MiB" not in Page(page(run, [], [], None)).text


def test_a_run_of_some_instances_says_so():
    run = record("previous")
    steps = run["hosts"]["dcu1"]["services"][0]["steps"]
    for kept, told in (
        ((1,), "accepted, asked: 1 of 8 instances"),
        ((1, 2), "2 of 2 instances passed, asked: 1,2 of 8 instances"),
    ):
        run["hosts"]["dcu1"]["services"][0]["steps"] = [step for step in steps if step["instance"] in kept]
        assert told in Page(page(run, [], [], None)).text
    assert "asked:" not in Page(shown("failed_schema")).text


def test_the_history_links_only_pages_that_are_there():
    history = record("history")
    del history[3]["html"]
    found = Page(page(record("failed_schema"), history, [], None))
    links = [own["href"] for tag, own in found.elements if tag == "a"]
    assert len(links) == len(history) - 1 and f"{history[3]['id']}.html" not in links
    assert "Failed since this run." in found.text


@pytest.mark.parametrize(
    "page_name",
    ["javascript:alert(1)", "//x.example/a.html", "http://x.example/a.html", "/etc/a.html", "a.html?x", "a b.html", 7],
)
def test_a_page_that_lies_elsewhere_is_not_linked(page_name):
    found = Page(page(record("accepted"), [{"id": "20261129T114200Z", "answer": "accepted", "html": page_name}], [], None))
    assert not [own for tag, own in found.elements if tag == "a"]


def test_a_hundred_hosts_stay_readable_and_small():
    html = page(many(), record("history"), [record("load_sweep")], record("previous"))
    assert len(html.encode()) < 3_000_000
    found = Page(html)
    hosts = [own["class"] for _, own in found.elements if own.get("class", "").startswith("host ")]
    assert hosts[:2] == ["host out", "host warn"] and hosts[2:] == ["host ok"] * 98
    assert [own["class"] for tag, own in found.elements if tag == "details" and "open" in own] == ["host out", "load ok"]
    assert "98 hosts accepted" in found.texts("summary")


def test_few_hosts_are_unfolded():
    assert [own for tag, own in Page(shown("accepted")).elements if tag == "details" and "open" not in own] == []


HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;{{ 7*7 }}{% x %}\u202e\x00\ud800\x1b[31m</style>]]>"


def poisoned(value):
    """Every text of a record is hostile, also the names of hosts."""
    if isinstance(value, dict):
        return {
            (f"{key}{HOSTILE}" if key in ("server1", "dcu1", "HTTP 503") else key): poisoned(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [poisoned(inner) for inner in value]
    return f"{value}{HOSTILE}" if isinstance(value, str) else value


@pytest.mark.parametrize("keep_answers", [False, True])
@pytest.mark.parametrize("name", SHOWN)
def test_what_comes_from_hosts_is_never_more_than_text(name, keep_answers):
    def cure(poison, good):
        if isinstance(good, dict):
            for key, inner in zip(poison, good):
                if inner in ("answer", "verdict", "kind", "id", "before"):
                    poison[key] = good[inner]
                cure(poison[key], good[inner])
        elif isinstance(good, list):
            for one, other in zip(poison, good):
                cure(one, other)

    run, history, loads, previous = SHOWN[name]
    parts = [
        record(run),
        record(history) if history else [],
        [record(one) for one in loads],
        record(previous) if previous else None,
    ]
    sick = [poisoned(part) for part in parts]
    if keep_answers:
        cure(sick, parts)
    html = page(*sick)
    well, found = Page(shown(name)), Page(html)
    assert {tag for tag, _ in found.elements} <= {tag for tag, _ in well.elements} | {"ul", "li", "ol", "h3", "code"}
    assert not any(attribute.startswith("on") or attribute in ("src", "style") for _, own in found.elements for attribute in own)
    assert all(own["href"] == "data:," or own["href"].startswith("2026") for _, own in found.elements if "href" in own)
    assert "{{ 7*7 }}" in found.text  # shown, and not worked out
    assert not re.search("[\x00\u202e\ud800\x1b]", html)
    html.encode()


def test_what_is_long_is_cut():
    run = record("failed_schema")
    for step in run["hosts"]["dcu1"]["services"][0]["steps"]:
        step["detail"] = "x" * 1_000_000
    assert len(page(run, [], [], None)) < 1_000_000


def test_the_newest_load_test_of_each_service_is_unfolded():
    old = {**record("load_sweep"), "id": "20261101T000000Z", "at": 1793491200.0}
    found = Page(page(record("accepted"), [], [old, record("load_sweep"), record("load_users")], None))
    loads = ["open" in own for tag, own in found.elements if own.get("class", "").startswith("load ")]
    assert loads == [True, True, False]
    assert "throughput in requests/s +2 %" in found.text and "Advice: raise max_num_seqs: all 32 slots" in found.text


def test_a_load_test_that_broke_its_limits():
    test = {
        **record("load_sweep"),
        "passed": False,
        "complaints": ["at concurrency 32 the first token took 92 ms"],
        "notes": ["a note"],
    }
    test["limits"] = {"ttft_p95_ms": 90}
    found = Page(page(record("accepted"), [], [test], None))
    assert "not within its limits ✕ at concurrency 32 the first token took 92 ms" in found.text and "a note" in found.text
    rows = [text for text in found.texts("tr") if "beyond a limit" in text]
    assert [("✕" in row, row.split()[0]) for row in rows] == [(True, "32"), (False, "48"), (False, "64")]


def test_a_run_shows_the_load_tests_that_it_has_seen():
    seen, other, run = record("load_sweep"), record("load_users"), record("accepted")
    assert 'id="loads"' not in page(run, [], [], None)
    next(iter(run["hosts"].values()))["services"][0]["load"] = seen
    assert page(run, [], [], None).count('id="loads"') == 1
    assert seen["service"] in page(run, [], [], None).split('id="loads"')[1]
    assert page({**run, "hosts": {}}, [], [other], None).count('id="loads"') == 1
