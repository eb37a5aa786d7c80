"""What is news, over the runs of a story."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from unit.accept import runs

from modelyard.accept import answer, changes

HOUR = 3600.0


class Story:
    """Runs in a row, an hour apart; `news` of each as {where: words}."""

    def __init__(self, busy_h=2.0, unreachable_h=0.0):
        self.told, self.number = {}, 0
        self.patience = {answer.BUSY: busy_h * HOUR, answer.UNREACHABLE: unreachable_h * HOUR}

    def run(self, *steps, hosts=None, reasons=None, hours=1.0):
        self.number += 1
        self.at = getattr(self, "at", 0.0) + hours * HOUR
        judged = hosts or {"server1": runs.host(runs.service(*steps))}
        made = runs.run(judged, id=f"run{self.number}", began=self.at)
        news, self.told = changes.compare(self.told, made, reasons or {}, self.patience)
        return {item["where"]: (item["before"], item["answer"]) for item in news}


def test_a_first_run_is_news_only_when_something_is_wrong():
    assert Story().run(runs.PASS) == {}
    assert Story().run(runs.FAIL) == {"server1/one": ("accepted", "failed"), "*": ("accepted", "failed")}


def test_a_failure_is_told_once_and_its_end_too():
    story = Story()
    found = [story.run(step) for step in (runs.PASS, runs.FAIL, runs.FAIL, runs.FAIL, runs.PASS, runs.PASS, runs.FAIL)]
    assert [sorted(one) for one in found] == [[], ["*", "server1/one"], [], [], ["*", "server1/one"], [], ["*", "server1/one"]]


def test_another_reason_is_told_once_each_however_often_they_change():
    story, other = Story(), {**runs.FAIL, "id": "chat"}
    found = [story.run(step) for step in (runs.FAIL, other, runs.FAIL, other, runs.FAIL)]
    assert [sorted(one) for one in found] == [["*", "server1/one"], ["server1/one"], [], [], []]
    assert story.run(runs.PASS)
    assert story.run(other) == {"server1/one": ("accepted", "failed"), "*": ("accepted", "failed")}


def test_a_short_load_is_no_news_and_hides_no_failure():
    story = Story()
    assert story.run(runs.PASS) == {}
    assert story.run(runs.BUSY) == {}
    assert story.run(runs.PASS) == {}
    assert story.run(runs.FAIL) != {}
    assert story.run(runs.BUSY) == {}
    assert story.run(runs.FAIL) == {}, "it was told before the load"
    assert story.run(runs.BUSY) == {}
    assert story.run(runs.PASS) == {"server1/one": ("failed", "accepted"), "*": ("failed", "accepted")}


def test_a_load_that_lasts_is_told_once():
    story = Story(busy_h=2)
    found = [story.run(runs.BUSY) for _ in range(6)]
    assert [len(one) for one in found] == [0, 0, 2, 0, 0, 0]
    assert found[2]["server1/one"] == ("accepted", "busy")
    assert story.run(runs.PASS)["server1/one"] == ("busy", "accepted")
    assert [len(story.run(runs.BUSY)) for _ in range(3)] == [0, 0, 2], "the next load begins anew"


def test_a_host_that_is_down_is_told_as_a_host_and_its_services_keep_what_was_told():
    story = Story()
    away = {"server1": runs.host(problem="no route to host", kind="unreachable")}
    assert story.run(runs.FAIL)
    assert story.run(hosts=away, reasons={"server1": "unreachable"}) == {
        "server1": ("accepted", "unreachable"),
        "*": ("failed", "unreachable"),
    }
    assert story.run(hosts=away, reasons={"server1": "unreachable"}) == {}
    assert story.run(runs.FAIL) == {"server1": ("unreachable", "accepted"), "*": ("unreachable", "failed")}


def test_a_host_that_only_starts_anew_is_no_news_where_patience_is_wanted():
    story = Story(unreachable_h=1.5)
    away = {"server1": runs.host(problem="no route to host", kind="unreachable")}
    assert story.run(runs.PASS) == {}
    assert story.run(hosts=away) == {}
    assert story.run(runs.PASS) == {}
    assert [len(story.run(hosts=away)) for _ in range(4)] == [0, 0, 2, 0]
    assert story.run(runs.PASS)["server1"] == ("unreachable", "accepted")


def test_a_busy_service_may_be_told_at_once():
    assert Story(busy_h=0).run(runs.BUSY)["server1/one"] == ("accepted", "busy")


def test_what_a_run_is_not_about_keeps_what_it_has_until_it_is_old():
    story = Story()
    story.run(hosts={name: runs.host(runs.service(runs.FAIL)) for name in ("server1", "server2")})
    assert story.run(hosts={"server2": runs.host(runs.service(runs.FAIL))}) == {}
    assert "server1/one" in changes.without_old(story.told, story.at, 1)
    later = changes.without_old(story.told, story.at + 23.5 * HOUR, 1)
    assert "server1/one" not in later
    assert "server2/one" in later


def test_the_headline_names_the_first_and_counts_the_others():
    hosts = {name: runs.host(runs.service(runs.FAIL)) for name in ("server1", "server2")}
    run = runs.run(hosts)
    news, _ = changes.compare({}, run, {}, {})
    assert changes.headline(run, news) == "Modelyard acceptance: server1/one failed and 1 more (was accepted)"
    assert "step schema on instance 1: {} does not fit" in news[0]["words"]


STEPS = st.sampled_from([runs.PASS, runs.FAIL, runs.BUSY, {**runs.FAIL, "id": "chat"}])


@given(st.lists(STEPS, max_size=12))
def test_what_was_told_is_always_usable_again_and_the_last_answer_is_known_unless_it_is_a_load(steps):
    story = Story()
    for step in steps:
        news = story.run(step)
        assert changes.usable(story.told)
        answered = runs.service(step)["answer"]
        if answered != answer.BUSY:
            assert story.told["server1/one"]["answer"] == answered
        assert all(before != after or after == answer.FAILED for before, after in news.values())
        assert story.run(step, hours=0.0) == {}, "the same again is never news"


def test_damaged_files_are_not_usable():
    for data in (None, [], {"*": 1}, {"*": {}}, {"*": {"answer": "well", "reasons": [], "waiting": None, "seen": 1}}):
        assert not changes.usable(data)
    assert changes.usable({})
