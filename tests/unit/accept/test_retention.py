"""Which runs of a history may go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from modelyard.accept import answer, retention

DAY = 86400.0


def history(*answers, every=DAY):
    return [{"id": f"r{n:03}", "began": n * every, "answer": one} for n, one in enumerate(answers)]


def test_the_newest_stay():
    assert retention.superfluous(history(*["accepted"] * 5), 4 * DAY, 3, 90) == ["r000", "r001"]
    assert retention.superfluous(history(*["accepted"] * 5), 4 * DAY, 99, 2) == ["r000", "r001"]


def test_the_last_accepted_run_stays_however_old_it_is():
    assert retention.superfluous(history("accepted", "accepted", *["failed"] * 9), 100 * DAY, 2, 1) == [
        "r000",
        *(f"r{n:03}" for n in range(2, 10)),
    ]


@given(st.lists(st.sampled_from(answer.ORDER)), st.integers(2, 9), st.floats(0.5, 30))
def test_what_stays_is_bounded_and_has_the_newest(answers, runs, days):
    found = history(*answers)
    gone = retention.superfluous(found, len(found) * DAY, runs, days)
    stays = [entry["id"] for entry in found if entry["id"] not in gone]
    assert len(stays) <= runs + 1
    assert stays[-1:] == [entry["id"] for entry in found[-1:]]
    assert retention.superfluous([e for e in found if e["id"] in stays], len(found) * DAY, runs, days) == []
