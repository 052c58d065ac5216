"""The metrics of a broker's partitions, under Apache Kafka's names."""

from __future__ import annotations

from pathlib import Path

from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.producer_states import producer_counts
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment, ManualClock
from kafkacore.protocol.uuid import Uuid
from kafkacore.replication.replica_counts import LedPartition
from kafkacore.server.metrics import partition_metrics

WRITTEN_MS = 1_700_000_000_000


def partition(path: Path, index: int, transactional: bool = False) -> PartitionHandle:
    path.mkdir(exist_ok=True)
    made = PartitionHandle(LogDirectory(Environment(ManualClock()), str(path)), "t", index, Uuid(bytes(range(16))))
    assert made.become_leader(1, 0)
    for producer_id in (7, 8):
        builder = RecordBatchBuilder(
            producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=transactional
        )
        builder.append(WRITTEN_MS + producer_id, None, b"v")
        origin = "transaction" if transactional else "client"
        assert made.append(builder.build(), origin=origin).error == 0
    return made


def test_partition_shows_its_replicas_when_it_is_led_and_zeros_otherwise(tmp_path: Path) -> None:
    led, other = partition(tmp_path / "led", 0, transactional=True), partition(tmp_path / "other", 1)
    state = LedPartition("t", 0, replicas=3, in_sync=1, min_isr=2, is_reassigning=False)
    values = {each.mbean: each.value for each in partition_metrics([led, other], [state])}
    name = "kafka.cluster:type=Partition,name=%s,topic=t,partition=%d"
    expected = {
        "UnderReplicated": 1, "UnderMinIsr": 1, "AtMinIsr": 0, "ReplicasCount": 3, "InSyncReplicasCount": 1,
        "LastStableOffsetLag": 2,
    }  # fmt: skip
    assert values == {name % (each, 0): value for each, value in expected.items()} | {
        name % (each, 1): 0 for each in expected
    }


def test_producers_are_counted_with_the_time_of_the_oldest_open_transaction(tmp_path: Path) -> None:
    assert producer_counts(partition(tmp_path / "plain", 0)) == (2, -1)
    assert producer_counts(partition(tmp_path / "open", 0, transactional=True)) == (2, WRITTEN_MS + 7)
