"""Changes of partitions and their eligible leader replicas (KIP-966), compared with Apache Kafka's own controller.

The test makes thousands of random partitions, ISR changes, elections, reassignments and unclean shutdowns. For each
change, `golden.PartitionChanges` gets the record and the changed partition from Apache Kafka 4.3's
PartitionChangeBuilder.
"""

import json
from array import array

import pytest

from golden import golden_file
from kafkacore.controller.common.partition_change import Election, Rules, Target, change
from kafkacore.metadata.partition_records import PartitionRecords
from kafkacore.metadata.partitions import NO_LEADER, Partition, PartitionChunk
from kafkacore.protocol.uuid import Uuid

TOPIC = Uuid(b"t" * 16)
LISTS = ("replicas", "isr", "removing", "adding", "elr", "last_known_elr")
TOLD = ("leader", "leader_recovery_state", "isr", "replicas", "removing_replicas", "adding_replicas",
        "eligible_leader_replicas", "last_known_elr")  # fmt: skip
LISTS_TOLD = TOLD[2:]


def directory(broker_id):
    return Uuid(broker_id.to_bytes(16, "big"))


def partition(told):
    lists = {name: tuple(told[name]) for name in LISTS}
    return Partition(
        topic_row=0, partition=0, directories=tuple(map(directory, told["directories"])), leader=told["leader"],
        leader_epoch=told["leader_epoch"], partition_epoch=told["partition_epoch"],
        recovery_state=told["recovery_state"], **lists,
    )  # fmt: skip


def replayed(row, record):
    blank, chunk = PartitionRecords(), PartitionChunk()
    blank.number(TOPIC, 0, 1)
    blank.place(1, row.replicas, row.isr, row.leader, row.directories)
    chunk.extend(array("i", [0]), blank, 0)
    chunk.put(0, row)
    chunk.change(0, 1, record)
    return chunk.get(0)


@pytest.fixture(scope="module")
def cases():
    return json.loads(golden_file("4.3", "PartitionChanges").read_text())


def test_partition_change_is_the_one_that_apache_kafkas_controller_makes(cases):
    with_elr = without_former = 0
    for case in cases:
        asked, row = case["asked"], partition(case["before"])
        target = Target(
            isr=asked.get("isr"),
            replicas=asked.get("replicas"),
            recovery_state=asked.get("recovery_state"),
            ineligible=frozenset(asked.get("unclean_shutdown", ())),
            election=Election[asked["election"]],
        )
        rules = Rules(set(asked["alive"]).__contains__, directory, asked["min_isr"], asked["elr"])
        record = change(row, TOPIC, target, rules)
        expected = partition(case["after"]) if "record" in case else row
        if not {*expected.elr, *row.elr, *(row.isr if asked["elr"] else ())} <= set(expected.replicas):
            # If a reassignment removes a replica, Apache Kafka keeps it in the ELR, although the replica's log is
            # deleted.
            found = row if record is None else replayed(row, record)
            assert set(found.elr) <= set(expected.elr) & set(expected.replicas), case
            without_former += 1
            continue
        if asked["elr"] and row.last_known_elr == (expected.leader,) and expected.leader not in expected.replicas:
            # Apache Kafka elects the last known leader, although this change removes its replica.
            assert (row if record is None else replayed(row, record)).leader != expected.leader, case
            continue
        told = case.get("record")
        other = row.leader == NO_LEADER or not set(row.last_known_elr) <= set(expected.replicas)
        if told is not None and asked["elr"] and other and told["last_known_elr"] in (None, [NO_LEADER]):
            # In the last known ELR, Apache Kafka stores that nobody led, or a replica that is gone, instead of the last
            # member of the ISR and ELR.
            found = row if record is None else replayed(row, record)
            eligible = {*row.isr, *row.elr, row.leader, *row.last_known_elr}
            assert set(found.last_known_elr) <= eligible & set(found.replicas), case
            told["last_known_elr"] = None if record is None else record.last_known_elr
            case["after"]["last_known_elr"] = list(found.last_known_elr)
        if told is not None and set(told["eligible_leader_replicas"] or (NO_LEADER,)) == set(row.elr):
            # Apache Kafka writes a record even if nothing but the order of an ELR changes.
            told["eligible_leader_replicas"], case["after"]["elr"] = None, list(row.elr)
            if (told["leader"], told["leader_recovery_state"]) == (-2, -1) and not any(map(told.get, LISTS_TOLD)):
                assert record is None, case
                continue
        assert (record is None) == (told is None), case
        if record is not None:
            assert {name: getattr(record, name) for name in TOLD} == told, case
            assert replayed(row, record) == partition(case["after"]), case
            with_elr += bool(record.eligible_leader_replicas)
    assert with_elr > 500
    assert 0 < without_former < len(cases) / 2
