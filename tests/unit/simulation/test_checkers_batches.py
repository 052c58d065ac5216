"""The checkers read batches with their own code, which agrees with the batches that the log writes."""

from __future__ import annotations

from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft.control import control_batch, data_batch
from kafkacore.raft.voters import ReplicaKey, Voter, VoterSet
from kafkacore.simulation.checkers import batches


def voters(*ids: int) -> VoterSet:
    endpoints = (("CONTROLLER", "a-host-with-a-name", 9093), ("SECOND", "b", 19093))
    return VoterSet(Voter(ReplicaKey(each, Uuid.random()), endpoints) for each in ids)


def test_entries_name_each_batch_by_its_end_when_batches_follow_each_other() -> None:
    data = data_batch([b"one", b"two"], 5, 3, 0) + data_batch([b"three"], 7, 4, 0)
    assert [(each.base, each.end, each.epoch) for each in batches.entries(data)] == [(5, 7, 3), (7, 8, 4)]
    changed = bytearray(data)
    changed[-2] ^= 1
    assert batches.entries(bytes(changed))[0] == batches.entries(data)[0]
    assert batches.entries(bytes(changed))[1] != batches.entries(data)[1]


def test_entry_names_its_producer_when_the_batch_has_one() -> None:
    builder = RecordBatchBuilder(producer_id=7, producer_epoch=2, base_sequence=40)
    builder.append(1, None, b"v")
    (entry,) = batches.entries(builder.build())
    assert (entry.producer, entry.producer_epoch, entry.sequence) == (7, 2, 40)
    (other,) = batches.entries(data_batch([b"one"], 0, 1, 0))
    assert other.producer == -1


def test_values_are_others_or_an_error_when_a_batch_is_damaged() -> None:
    data = bytearray(data_batch([b"x" * 30, b"y"], 0, 1, 0))
    for at in range(61, len(data.rstrip(b"\0"))):  # 61 bytes are the header
        damaged = bytes(data[:at]) + bytes(len(data) - at)  # as if a power cut had kept only the first sectors
        try:
            values = batches.values(damaged)
        except IndexError:
            continue
        assert values != batches.values(bytes(data))


def test_entries_end_when_a_batch_is_cut() -> None:
    data = data_batch([b"one"], 0, 1, 0)
    assert batches.entries(data + data[:-1]) == batches.entries(data)


def test_values_leave_out_control_records_when_both_are_there() -> None:
    data = control_batch([voters(1).to_record()], 0, 1, 0) + data_batch([b"x" * 300, b"y"], 1, 1, 0)
    assert batches.values(data) == [(1, b"x" * 300), (2, b"y")]


def test_voters_are_found_when_a_control_batch_holds_them() -> None:
    data = data_batch([b"v"], 0, 1, 0) + control_batch([voters(3, 1, 300).to_record()], 1, 1, 0)
    assert batches.voters(data) == [(1, frozenset({1, 3, 300}))]
