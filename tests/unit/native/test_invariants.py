"""Invariants of the native data plane. If a test breaks an invariant, a debug build aborts."""

import pytest

from aborting import abort_message, only_debug

pytestmark = only_debug

FAULTS = "from kafkacore._fast.hot import planted_faults\n"


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("ring_over_capacity", "a ring holds no more than its capacity"),
        ("ring_lost_waiter", "the ring counts its waiters"),
        ("budget_released_twice", "no more bytes are released than were reserved"),
        ("budget_lost_reservation", "the budget counts the reservations that wait"),
        ("sessions_miscounted", "the cache counts its sessions, within its slots"),
        ("session_miscounted", "an empty session has neither a first nor a last partition"),
    ],
)
def test_damaged_structure_aborts_with_its_invariant(fault, text):
    assert text in abort_message(f"{FAULTS}planted_faults.{fault}()")


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("start behind end", "0 <= log start <= local log start <= log end"),
        ("synced behind end", "the synced offset is within the log"),
        ("high watermark behind end", "last stable offset <= high watermark <= log end"),
        ("unstable offset behind end", "the oldest open transaction is within the log"),
        ("open without segments", "an open log has segments"),
        ("unknown role", "a partition has one of its roles"),
        ("unknown state", "a log is in one of its states"),
    ],
)
def test_damaged_partition_aborts_when_its_lock_is_released(tmp_path, fault, text):
    program = f"""{FAULTS}
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment
directory = LogDirectory(Environment(), {str(tmp_path)!r})
planted_faults.partition(PartitionHandle(directory, "t", 0), {fault!r})
"""
    assert text in abort_message(program)


def test_connection_aborts_when_another_thread_closes_it():
    program = f"""{FAULTS}
import threading
owner = threading.Thread(target=planted_faults.take_connection)
owner.start()
owner.join()
planted_faults.close_connection()
"""
    assert "a connection is touched by its processor's thread only" in abort_message(program)
