from __future__ import annotations

import multiprocessing
import os
import resource
import threading

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, lock


def holder(run, what="deploy"):
    return {"run": run, "what": what, "by": f"ops on {run}", "since": "2026-11-29 17:00:00 UTC"}


def held_by(home):
    return layout.read_json(lock.path(str(home)))


def test_a_free_lock_is_taken_and_names_its_holder(tmp_path):
    assert lock.take(str(tmp_path), holder("a")) is True
    assert held_by(tmp_path) == holder("a")


def test_taking_it_twice_in_one_run_is_no_second_taking(tmp_path):
    lock.take(str(tmp_path), holder("a"))
    assert lock.take(str(tmp_path), holder("a")) is False
    assert held_by(tmp_path) == holder("a")


def test_a_held_lock_is_refused_with_its_holder(tmp_path):
    lock.take(str(tmp_path), holder("a", "teardown"))
    with pytest.raises(lock.Held) as refused:
        lock.take(str(tmp_path), holder("b"))
    assert refused.value.holder == holder("a", "teardown")
    assert held_by(tmp_path) == holder("a", "teardown")


def test_a_released_lock_is_free_again(tmp_path):
    lock.take(str(tmp_path), holder("a"))
    assert lock.release(str(tmp_path), "a") is True
    assert not lock.path(str(tmp_path)).exists()
    assert lock.take(str(tmp_path), holder("b")) is True


def test_only_its_holder_releases_it(tmp_path):
    lock.take(str(tmp_path), holder("a"))
    assert lock.release(str(tmp_path), "b") is False
    assert held_by(tmp_path) == holder("a")


def test_releasing_what_is_not_held_is_no_failure(tmp_path):
    assert lock.release(str(tmp_path), "a") is False


def test_the_lock_of_a_dead_run_is_taken_over_and_nothing_else_stays(tmp_path):
    lock.take(str(tmp_path), holder("dead"))
    assert lock.take(str(tmp_path), holder("b"), dead_run="dead") is True
    assert held_by(tmp_path) == holder("b")
    assert [p.name for p in tmp_path.iterdir()] == ["lock"]


def test_the_lock_of_a_living_run_is_not_taken_over(tmp_path):
    lock.take(str(tmp_path), holder("living"))
    with pytest.raises(lock.Held) as refused:
        lock.take(str(tmp_path), holder("b"), dead_run="dead")
    assert refused.value.holder == holder("living")
    assert [p.name for p in tmp_path.iterdir()] == ["lock"]


def test_a_lock_that_cannot_be_read_is_held(tmp_path):
    lock.path(str(tmp_path)).write_text("{half")
    with pytest.raises(lock.Held) as refused:
        lock.take(str(tmp_path), holder("b"), dead_run="dead")
    assert refused.value.holder is None


def test_a_taker_that_cannot_write_leaves_no_lock_that_nobody_can_take_over(tmp_path):
    # As on a full disk: the file can be made, its content cannot be written.
    def without_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        try:
            lock.take(str(tmp_path), holder("a"))
        except OSError:
            os._exit(3)
        os._exit(0)

    taker = multiprocessing.get_context("fork").Process(target=without_room)
    taker.start()
    taker.join(timeout=20)
    assert taker.exitcode == 3
    assert [p.name for p in tmp_path.iterdir()] == []
    assert lock.take(str(tmp_path), holder("b")) is True


def _race(homes, run, barrier, results):
    for home in homes:
        barrier.wait()
        try:
            lock.take(home, holder(run), dead_run="dead")
            results.put((home, run, "won"))
        except lock.Held:
            results.put((home, run, "held"))
        except BaseException as exc:
            results.put((home, run, repr(exc)))


def test_of_two_that_see_a_dead_holder_at_once_exactly_one_goes_on(tmp_path):
    homes = [tmp_path / str(number) for number in range(150)]
    for home in homes:
        home.mkdir()
        lock.take(str(home), holder("dead"))
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(2), context.Queue()
    takers = [context.Process(target=_race, args=([str(h) for h in homes], run, barrier, results)) for run in "ab"]
    for taker in takers:
        taker.start()
    outcomes = [results.get(timeout=20) for _ in range(2 * len(homes))]
    for taker in takers:
        taker.join(timeout=20)
    for home in homes:
        here = {run: how for where, run, how in outcomes if where == str(home)}
        assert sorted(here.values()) == ["held", "won"]
        assert held_by(home)["run"] == next(run for run, how in here.items() if how == "won")
        assert [p.name for p in home.iterdir()] == ["lock"]


@pytest.fixture
def meanwhile(monkeypatch):
    """Lets others act right after the n-th time that the taker has read a lock file: an order that a race can give.

    They act in threads, so that a taker may also make them wait; `finish` waits for them.
    """
    others, reads, plain = [], [], layout.read_json

    def plan(**acts):
        def reading(path):
            data = plain(path)
            if threading.current_thread() is threading.main_thread():
                reads.append(path)
                if f"after_read_{len(reads)}" in acts:
                    others.append(threading.Thread(target=acts[f"after_read_{len(reads)}"]))
                    others[-1].start()
                    others[-1].join(timeout=0.5)
            return data

        monkeypatch.setattr(layout, "read_json", reading)

    plan.finish = lambda: [other.join(timeout=10) for other in others]
    return plan


def test_a_dead_lock_that_vanishes_while_it_is_looked_at_is_no_crash(tmp_path, meanwhile):
    home = str(tmp_path)
    lock.take(home, holder("dead"))
    meanwhile(after_read_1=lambda: lock.path(home).unlink())
    assert lock.take(home, holder("b"), dead_run="dead") is True
    assert held_by(tmp_path) == holder("b")


def test_of_three_at_a_dead_lock_one_goes_on(tmp_path, meanwhile):
    # b reads the dead holder; a takes the lock over; b moves a's lock aside; c comes and finds none.
    home = str(tmp_path)
    lock.take(home, holder("dead"))
    winners = []

    def take(run, dead_run=""):
        try:
            lock.take(home, holder(run), dead_run)
            winners.append(run)
        except (lock.Held, OSError):
            pass

    meanwhile(after_read_1=lambda: take("a", "dead"), after_read_2=lambda: take("c"))
    take("b", "dead")
    meanwhile.finish()
    assert len(winners) == 1
    assert held_by(tmp_path)["run"] == winners[0]


def test_a_lock_that_vanishes_while_it_is_released_is_no_crash(tmp_path, meanwhile):
    home = str(tmp_path)
    lock.take(home, holder("a"))
    meanwhile(after_read_1=lambda: lock.path(home).unlink())
    lock.release(home, "a")
    assert not lock.path(home).exists()


def test_a_home_that_cannot_be_written_says_so(tmp_path):
    with pytest.raises(OSError, match="No such file or directory"):
        lock.take(str(tmp_path / "absent"), holder("a"))
