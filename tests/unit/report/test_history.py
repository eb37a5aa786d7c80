from __future__ import annotations

from modelyard.report import history, record


def strip(answer="failed", entries=(), name="20261130T120000Z"):
    return history.strip(record.run({"id": name, "answer": answer}), list(entries))


def entry(hour, answer, **more):
    return {"id": f"20261130T{hour:02d}0000Z", "answer": answer, **more}


def test_the_first_run_is_alone():
    found = strip()
    assert [one.is_this for one in found.entries] == [True]
    assert (found.runs, found.is_start) == (1, False)


def test_since_when_the_answer_is_what_it_is():
    found = strip(entries=[entry(3, "failed"), entry(2, "accepted"), entry(4, "failed"), entry(1, "failed")])
    assert [one.id[9:11] for one in found.entries] == ["01", "02", "03", "04", "12"]
    assert (found.since.id, found.runs, found.is_start) == ("20261130T030000Z", 3, True)


def test_an_answer_without_a_known_begin():
    found = strip("accepted", [entry(1, "accepted"), entry(2, "accepted")])
    assert (found.since.id, found.runs, found.is_start) == ("20261130T010000Z", 3, False)


def test_the_run_itself_is_in_its_history_only_once():
    assert len(strip(entries=[entry(12, "failed"), entry(11, "failed")]).entries) == 2


def test_a_page_of_an_old_run_shows_what_came_later_too():
    found = strip("failed", [entry(11, "accepted"), entry(13, "accepted"), entry(14, "accepted")])
    assert [one.answer.id for one in found.entries] == ["accepted", "failed", "accepted", "accepted"]
    assert (found.runs, found.is_start) == (1, True)


def test_long_histories_are_cut():
    found = strip(
        "accepted",
        [{"id": f"202611{day:02d}T{hour:02d}0000Z", "answer": "accepted"} for day in (1, 2, 3, 4) for hour in range(24)],
    )
    assert (len(found.entries), found.left_out, found.runs) == (60, 37, 97)


def test_runs_with_another_limit_are_left_out():
    found = strip("failed", [entry(10, "failed", limit=""), entry(11, "accepted", limit="server1"), entry(9, "accepted")])
    assert [one.answer.id for one in found.entries] == ["accepted", "failed", "failed"]


def test_words_of_an_entry():
    found = strip("busy", [entry(1, "what?")])
    assert [one.words for one in found.entries] == ["2026-11-30 01:00 UTC: unknown", "2026-11-30 12:00 UTC: busy, this run"]
