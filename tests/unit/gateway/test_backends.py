"""Whose turn it is, and who is out. The clock is a number here."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from modelyard_gateway import backends, settings


def make(count=4, **more):
    entries = [{"name": f"b{n}", "url": f"http://127.0.0.1:{9000 + n}"} for n in range(count)]
    found = backends.Backends(settings.read({"backends": entries, **more}), 0.0, 1000.0)
    for backend in found.all:
        found.looked(backend, "", 0.0, 1000.0)
    return found


def test_ties_go_round():
    found = make(3)
    assert [found.pick(0).name for _ in range(7)] == ["b0", "b1", "b2", "b0", "b1", "b2", "b0"]


def test_after_releases_ties_still_go_round():
    found = make(3)
    names = []
    for _ in range(6):
        backend = found.pick(0)
        names.append(backend.name)
        found.release(backend)
    assert names == ["b0", "b1", "b2"] * 2


@given(st.lists(st.integers(0, 99), max_size=200), st.integers(1, 9))
def test_the_fewest_always_gets_it_and_no_pile_grows_above_its_share(steps, count):
    """Steps: 60 and above picks, below ends the request of that number."""
    found = make(count)
    running = []
    most = 0
    for step in steps:
        if step >= 60 or not running:
            before = {b.name: b.in_flight for b in found.all}
            backend = found.pick(0)
            assert before[backend.name] == min(before.values())
            running.append(backend)
        else:
            found.release(running.pop(step % len(running)))
        most = max(most, len(running))
        assert sum(b.in_flight for b in found.all) == len(running)
        assert max(b.in_flight for b in found.all) <= -(-most // count)


def test_refused_ejects_at_once_and_the_trial_is_one_request():
    found = make(2)
    bad = found.named("b0")
    found.failed(bad, "refused", "connection refused", 0, 1000)
    assert (bad.state, bad.why) == ("ejected", "connection refused")
    assert {found.pick(0).name for _ in range(5)} == {"b1"}
    found.looked(bad, "", 9.9, 1000)
    assert bad.state == "ejected"
    found.looked(bad, "", 10.1, 1000)
    assert bad.state == "half_open"
    assert [found.pick(10.2).name for _ in range(3)] == ["b0", "b1", "b1"]
    found.answered(bad, 404, 10.3, 1000)
    assert bad.state == "half_open", "4xx says nothing"
    found.answered(bad, 200, 10.3, 1000)
    assert bad.state == "up"


def test_a_trial_that_fails_ejects_for_longer():
    found = make(2)
    bad = found.named("b0")
    now, spans = 0.0, []
    for _ in range(5):
        found.failed(bad, "refused", "no", now, 0)
        spans.append(bad.ejected_until - now)
        now = bad.ejected_until
        found.looked(bad, "", now, 0)
        assert bad.state == "half_open"
    assert spans == [10, 20, 40, 60, 60]
    found.answered(bad, 200, now, 0)
    found.failed(bad, "refused", "no", now, 0)
    assert bad.ejected_until - now == 10


@pytest.mark.parametrize("status", [400, 404, 409, 422, 429, 501, 505])
def test_statuses_that_blame_nobody(status):
    found = make(2)
    for _ in range(50):
        found.answered(found.named("b0"), status, 0, 0)
    assert found.named("b0").state == "up"


@pytest.mark.parametrize("kind", ["timeout", "broken", "truncated"])
def test_failures_in_a_row_eject(kind):
    found = make(2)
    bad = found.named("b0")
    found.failed(bad, kind, "x", 0, 0)
    found.answered(bad, 500, 0, 0)
    found.answered(bad, 200, 0, 0)
    for _ in range(2):
        found.answered(bad, 502, 0, 0)
        found.answered(bad, 400, 0, 0)
    assert bad.state == "up"
    found.failed(bad, kind, "x", 0, 0)
    assert bad.state == "ejected" and "3 failures in a row" in bad.why
    assert bad.errors == {kind: 2, "server_error": 3}


def test_clients_that_leave_blame_nobody():
    found = make(2)
    for _ in range(9):
        found.failed(found.named("b0"), "client_gone", "x", 0, 0)
    assert found.named("b0").state == "up"


def test_the_last_one_stays_for_its_own_500s_but_not_when_it_is_gone():
    found = make(2)
    found.failed(found.named("b1"), "refused", "no", 0, 0)
    last = found.named("b0")
    for _ in range(20):
        found.answered(last, 500, 0, 0)
    assert last.state == "up"
    found.failed(last, "refused", "no", 0, 0)
    assert found.pick(0) is None and not found.any_able()
    assert found.why_none() == "b0 is ejected (no); b1 is ejected (no)"


def test_health_takes_out_after_three_and_one_success_is_a_trial():
    found = make(2)
    bad = found.named("b0")
    for _ in range(2):
        found.looked(bad, "no answer", 0, 0)
    found.looked(bad, "", 0, 0)
    for _ in range(2):
        found.looked(bad, "no answer", 0, 0)
    assert bad.state == "up"
    found.looked(bad, "no answer within 2 s", 0, 7)
    assert (bad.state, bad.why, bad.since) == ("down", "no answer within 2 s", 7)
    found.looked(bad, "", 0, 8)
    assert bad.state == "half_open"


def test_one_not_looked_at_is_the_last_choice():
    found = make(2)
    found.named("b0").state = "unknown"
    assert {found.pick(0).name for _ in range(5)} == {"b1"}
    found.drain(found.named("b1"))
    assert found.pick(0).name == "b0"
    found.answered(found.named("b0"), 200, 0, 0)
    assert found.named("b0").state == "up"


def test_limits_and_tried():
    found = make(2, per_backend_limit=1)
    first = found.pick(0)
    assert found.other_than({first.name})
    second = found.pick(0)
    assert found.pick(0) is None and found.any_able() and not found.other_than({"b9"})
    assert found.pick(0, beyond_limit=True) is not None
    assert found.pick(0, {first.name, second.name}, beyond_limit=True) is None


def test_hung_is_shown_less_liked_and_never_ended():
    found = make(2, hung_after_s=10)
    backend = found.pick(0)
    found.look_for_hung(9)
    assert not backend.hung
    found.look_for_hung(10)
    assert backend.hung and "seems to hang" in found.events[-1]
    assert {found.pick(11).name for _ in range(4)} == {"b1"}
    found.moved(backend, 12, 1012)
    assert not backend.hung and backend.last_token_at == 1012
    found.look_for_hung(23)
    assert backend.hung
    found.release(backend)
    assert not backend.hung


def test_another_configuration_keeps_what_runs():
    found = make(2)
    kept, leaving = found.pick(0), found.pick(0)
    entries = [{"name": "b0", "url": "http://127.0.0.1:9000"}, {"name": "b7", "url": "http://127.0.0.1:9007"}]
    found.update(settings.read({"backends": entries}), 0, 0)
    assert found.named("b0") is kept and found.named("b7").state == "unknown" and found.named("b1") is None
    assert leaving in found.all and leaving.draining
    found.release(leaving)
    assert [b.name for b in found.all] == ["b0", "b7"]


def test_drains_of_an_earlier_run():
    entries = [{"name": f"b{n}", "url": f"http://127.0.0.1:{9000 + n}", "drained": n == 2} for n in range(3)]
    found = backends.Backends(settings.read({"backends": entries}), 0, 0)
    found.restore(["b0"], ["b0", "b1"])
    assert [b.draining for b in found.all] == [True, False, True]
    found.undrain(found.named("b2"))
    found.drain(found.named("b1"))
    assert [b.draining for b in found.all] == [True, True, False]


def test_one_that_is_too_busy_for_health_and_gives_tokens_stays_in():
    found = make(2)
    busy = found.pick(0)
    for now in range(1, 20):
        found.moved(busy, now - 1, 1000)
        found.looked(busy, "/health gave no answer within 2 s", now, 1000, silent_s=2.0)
        assert (busy.state, busy.failed_looks) == ("up", 0)
    # An answer that it is not well counts, whatever comes beside it.
    for _ in range(3):
        found.moved(busy, 20, 1000)
        found.looked(busy, "/health answered 503", 20, 1000)
    assert busy.state == "down"


@pytest.mark.parametrize(("in_flight", "heard"), [(False, 19.0), (True, 17.0), (True, None)])
def test_one_that_gives_neither_tokens_nor_an_answer_goes_out(in_flight, heard):
    found = make(1)
    (one,) = found.all
    if in_flight:
        found.pick(0)
    if heard is not None:
        found.moved(one, heard, 1000)
    for _ in range(3):
        found.looked(one, "/health gave no answer within 2 s", 20, 1000, silent_s=2.0)
    assert one.state == "down"
