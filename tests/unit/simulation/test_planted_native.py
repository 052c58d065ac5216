"""Bugs planted in native code. A release build contains none of them. A build for the simulator can switch each of them
on and off."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkacore._fast.log
from kafkacore._fast.base.debug_checks import DEBUG, PLANTED
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.agenda import SimulatedAgenda
from kafkacore._fast.world.environment import ManualClock
from kafkacore._fast.world.simulated_disk import SimulatedDisk
from kafkacore.protocol.errors import ErrorCode
from kafkacore.simulation.planted_native import NATIVE_BUGS, planted_natively
from kafkacore.storage import log_loader
from native_bugs import bug, with_and_without

LOG = "/logs/t-0"
SEGMENT = f"{LOG}/00000000000000000000.log"


def batch(value: bytes, producer_id: int = -1, epoch: int = -1, sequence: int = -1) -> bytearray:
    builder = RecordBatchBuilder(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    builder.append(1, None, value)
    return bytearray(builder.build())


class OneLog:
    """A log on a simulated disk, with one synced record."""

    def __init__(self) -> None:
        self.agenda = SimulatedAgenda()
        self.disk = SimulatedDisk()
        self.disk.make_directories("/logs")
        self.handle = self.open()
        self.handle.append(batch(b"first"))

    def open(self) -> PartitionHandle:
        directory = LogDirectory(self.disk.environment(ManualClock(), self.agenda), "/logs")
        made = PartitionHandle(directory, "t", 0, settings=LogSettings(flush_messages=1))
        made.become_leader(1, 0)
        return made

    def load(self, recovery_point: int = 0) -> PartitionHandle:
        made = self.open()
        log_loader.load(made, LOG, clean=False, recovery_point=recovery_point, files=self.disk)
        return made


@with_and_without
def test_record_may_be_lost_in_a_power_cut_when_its_sync_was_lost(is_there: bool) -> None:
    kept = set()
    for seed in range(20):
        log = OneLog()
        with bug("lost-sync", is_there):
            log.handle.append(batch(b"second"))
        assert log.handle.synced_offset == 2
        log.disk.cut_power()
        log.disk.restart(seed)
        kept.add(b"second" in log.disk.read(SEGMENT))
    assert kept == ({False, True} if is_there else {True})


@with_and_without
def test_high_watermark_passes_the_synced_offset_when_the_bug_is_there(is_there: bool) -> None:
    log = OneLog()
    with bug("unsynced-high-watermark", is_there):
        log.handle.append_now(batch(b"second"))
        assert (log.handle.high_watermark, log.handle.synced_offset) == ((2, 1) if is_there else (1, 1))


@with_and_without
def test_recovery_keeps_a_batch_with_a_wrong_checksum_when_the_bug_is_there(is_there: bool) -> None:
    log = OneLog()
    log.handle.append(batch(b"second"))
    log.disk.kill()
    data = bytearray(log.disk.read(SEGMENT))
    data[-3] ^= 1
    log.disk.write(SEGMENT, bytes(data))
    with bug("torn-tail-accepted", is_there):
        assert log.load().end_offset == (2 if is_there else 1)


@with_and_without
def test_recovery_point_passes_the_synced_offset_when_the_bug_is_there(is_there: bool) -> None:
    log = OneLog()
    log.handle.append_now(batch(b"second"))
    with bug("recovery-point-ahead", is_there):
        assert log.handle.recovery_point == (2 if is_there else 1)


@with_and_without
def test_older_producer_epoch_is_accepted_when_the_bug_is_there(is_there: bool) -> None:
    log = OneLog()
    assert log.handle.append(batch(b"new", 7, 5, 0)).error == 0
    with bug("producer-epoch-ignored", is_there):
        answered = log.handle.append(batch(b"old", 7, 4, 0)).error
    assert answered == (0 if is_there else ErrorCode.INVALID_PRODUCER_EPOCH)


@with_and_without
def test_gap_in_the_sequence_is_accepted_when_the_bug_is_there(is_there: bool) -> None:
    log = OneLog()
    assert log.handle.append(batch(b"one", 7, 0, 0)).error == 0
    with bug("sequence-gap-accepted", is_there):
        answered = log.handle.append(batch(b"three", 7, 0, 2)).error
    assert answered == (0 if is_there else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


@pytest.mark.skipif(DEBUG and not PLANTED, reason="a sanitizer keeps the texts of calls that are compiled out")
def test_release_build_names_no_native_bug() -> None:
    folder = Path(kafkacore._fast.log.__file__).parents[1]
    built = [each.read_bytes() for each in folder.rglob("*.so")]
    assert len(built) > 50
    for name in NATIVE_BUGS:
        assert any(name.encode() in each for each in built) == PLANTED, name


def test_planting_is_refused_when_the_bug_is_unknown_or_the_build_holds_none() -> None:
    with pytest.raises(ValueError, match="is not a native bug"), planted_natively("no-such-bug"):
        pass
    if not PLANTED:
        with pytest.raises(RuntimeError, match="KAFKACORE_PLANTED=1"), planted_natively("lost-sync"):
            pass


# --- replication ---


def replicated(isr: set[int], min_isr: int = 1) -> PartitionHandle:
    """Returns a partition that node 1 leads in epoch 1. Its other replica is on node 2."""
    handle = OneLog().handle
    handle.become_leader(1, 1, 1, [(2, 2 in isr)], min_isr)
    return handle


@with_and_without
def test_high_watermark_passes_records_on_too_few_replicas_when_the_bug_is_there(is_there: bool) -> None:
    with bug("high-watermark-below-min-isr", is_there):
        handle = replicated(set(), min_isr=2)
        handle.append(batch(b"second"))
        assert handle.high_watermark == (2 if is_there else 1)


@with_and_without
def test_high_watermark_runs_ahead_of_a_joining_replica_when_the_bug_is_there(is_there: bool) -> None:
    with bug("joining-replica-not-awaited", is_there):
        handle = replicated(set())
        handle.followed(2, 1)
        handle.append(batch(b"second"))
        assert handle.high_watermark == (2 if is_there else 1)


@with_and_without
def test_position_is_forgotten_with_the_isr_when_the_bug_is_there(is_there: bool) -> None:
    with bug("followers-forgotten", is_there):
        handle = replicated({2})
        handle.followed(2, 1)
        handle.become_leader(1, 1, 2, [(2, True)])
        assert [each.end_offset for each in handle.followers()] == [-1 if is_there else 1]


@with_and_without
def test_record_is_acknowledged_in_a_later_leadership_when_the_bug_is_there(is_there: bool) -> None:
    with bug("acknowledgement-outlives-leadership", is_there):
        handle = replicated({2})
        ack = handle.append(batch(b"second"), -1, wait=False).ack
        assert ack is not None
        handle.become_follower(2, 2, 2)
        handle.become_leader(1, 3, 3, [(2, True)])
        handle.followed(2, 2)
        handle.flush()
        assert handle.acknowledged(*ack) == (0 if is_there else ErrorCode.NOT_LEADER_OR_FOLLOWER)


@with_and_without
def test_truncated_record_is_acknowledged_when_the_bug_is_there(is_there: bool) -> None:
    with bug("acknowledged-across-truncation", is_there):
        handle = replicated({2})
        ack = handle.append(batch(b"second"), -1, wait=False).ack
        assert ack is not None
        handle.truncate_to(1)
        handle.append(batch(b"another"))
        handle.followed(2, 2)
        handle.flush()
        assert handle.acknowledged(*ack) == (0 if is_there else ErrorCode.NOT_LEADER_OR_FOLLOWER)


@with_and_without
def test_late_answer_of_a_leader_is_appended_when_the_bug_is_there(is_there: bool) -> None:
    with bug("unfenced-follower", is_there):
        handle = OneLog().handle
        handle.become_follower(2, 7, 1)
        late = batch(b"second")
        late[7] = 1  # the last byte of the base offset
        assert handle.append_as_follower(late, 6).error == (0 if is_there else ErrorCode.FENCED_LEADER_EPOCH)
