"""Assertions about data, lock order and owners. In a debug build, each kind of violation aborts the process. In a
release build, the checks cost nothing."""

import pytest

from aborting import abort_message, only_debug, only_release, run
from kafkacore._fast.base.debug_checks import RANKS

LOCKS = """
from kafkacore._fast.base.debug_checks import RANKS, RankedMutex
session, log, ring, groups = (RankedMutex(RANKS[name]) for name in ("fetch session", "log", "ring", "groups"))
"""


@only_debug
def test_assertion_aborts_with_file_line_and_text_when_it_fails():
    message = abort_message("from kafkacore._fast.base.debug_checks import check; check(True); check(False)")
    assert "debug_checks.pyx:" in message
    assert "assertion failed: the condition that a test gave" in message


@only_release
def test_assertion_does_nothing_in_a_release_build():
    assert run("from kafkacore._fast.base.debug_checks import check; check(False)").returncode == 0


@pytest.mark.parametrize("order", ["session log ring", "session log groups", "log ring", "ring", "session", "log"])
def test_locks_may_be_taken_in_the_order_of_their_ranks(order):
    program = LOCKS + "".join(f"{name}.lock()\n" for name in order.split())
    program += "".join(f"assert {name}.is_held()\n{name}.unlock()\n" for name in order.split())
    done = run(program)
    assert done.returncode == 0, done.stderr


@only_debug
@pytest.mark.parametrize(
    ("held", "taken", "names"),
    [
        ("log", "session", "holds Log.lock takes FetchSession.lock"),
        ("ring", "log", "holds Ring.lock takes Log.lock"),
        ("ring", "groups", "holds Ring.lock takes StableGroups.lock"),  # no lock may be taken while a leaf lock is held
        ("log", "RankedMutex(RANKS['log'])", "holds Log.lock takes Log.lock"),  # two logs have no order between them
    ],
)
def test_lock_out_of_order_aborts_with_both_names(held, taken, names):
    assert names in abort_message(f"{LOCKS}{held}.lock()\n{taken}.lock()")


@only_debug
def test_lock_aborts_when_its_thread_holds_the_gil():
    assert "holds the GIL takes Log.lock" in abort_message(f"{LOCKS}log.lock_with_gil()")


@only_debug
def test_unlock_aborts_when_another_thread_holds_the_mutex():
    program = (
        f"{LOCKS}import threading\nlog.lock()\nother = threading.Thread(target=log.unlock)\nother.start()\nother.join()"
    )
    assert "a thread unlocks a mutex that it does not hold" in abort_message(program)


@only_debug
def test_wait_for_a_condition_aborts_when_another_lock_is_held():
    message = abort_message(f"{LOCKS}session.lock()\nlog.lock()\nlog.wait(1)")
    assert "a thread that waits for a condition may hold only its mutex" in message


def test_wait_for_a_condition_keeps_the_mutex_held():
    done = run(f"{LOCKS}log.lock()\nlog.wait(1)\nassert log.is_held()\nlog.unlock()")
    assert done.returncode == 0, done.stderr


@only_debug
def test_owned_data_aborts_when_another_thread_touches_it():
    program = """
        import threading
        from kafkacore._fast.base.debug_checks import OwnedData
        data = OwnedData()
        data.touch()
        data.take()
        data.touch()
        other = threading.Thread(target=data.touch)
        other.start()
        other.join()
    """
    assert "only the owner's thread may touch the data" in abort_message(program)


def test_owned_data_may_be_touched_by_any_thread_after_its_owner_dropped_it():
    program = """
        import threading
        from kafkacore._fast.base.debug_checks import OwnedData
        data = OwnedData()
        data.take()
        data.drop()
        other = threading.Thread(target=data.touch)
        other.start()
        other.join()
    """
    done = run(program)
    assert done.returncode == 0, done.stderr


def test_unknown_rank_is_refused():
    done = run(f"from kafkacore._fast.base.debug_checks import RankedMutex\nRankedMutex({len(RANKS) + 100})")
    assert "ValueError: rank" in done.stderr
