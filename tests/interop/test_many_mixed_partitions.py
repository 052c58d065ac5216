"""A thousand partitions with one replica on a broker of Apache Kafka and one on ours. At first each broker leads half
of the partitions, and later one broker leads all of them."""

import time

import pytest

from asking import ask
from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import ProduceRequest
from process_cluster import LIMIT_S
from quorums import OURS
from replicated import ReplicatedCluster

PARTITIONS = 1000
MINE, THEIRS = 101, 102
PRODUCE_VERSION = 9
TIMESTAMP_MS = int(time.time() * 1000)  # with older timestamps, retention.ms would delete the records
WHICH = [("many", partition) for partition in range(PARTITIONS)]


@pytest.fixture(params=["apache-4.3"])
def cluster(request, tools_of_either, tmp_path):
    cluster = ReplicatedCluster(
        tmp_path / "cluster",
        controllers={1: OURS},
        brokers={MINE: OURS, THEIRS: request.param},
        tools=tools_of_either,
        settings={"replica.lag.time.max.ms": "15000"},
    )
    try:
        yield cluster.start("4.3")
    finally:
        cluster.close()


def write(cluster, turn):
    """Writes one record to each partition, with one request to each leader. Returns the values when the brokers have
    acknowledged all of them."""
    values = [b"%d of turn %d" % (partition, turn) for partition in range(PARTITIONS)]
    left = set(range(PARTITIONS))

    def written():
        states = cluster.partitions("many")
        for node_id in cluster.brokers:
            led = [partition for partition in left if states["many", partition].leader == node_id]
            if led:
                left.difference_update(produce(cluster.addresses[node_id], led, values))
        return not left

    cluster.wait(written, f"a record in each partition in turn {turn}")
    return values


def produce(address, partitions, values):
    """Returns the partitions whose records were acknowledged. The others may have a new leader that does not know its
    role yet."""
    data = []
    for partition in partitions:
        builder = RecordBatchBuilder()
        builder.append(TIMESTAMP_MS, None, values[partition])
        data.append(ProduceRequest.PartitionProduceData(index=partition, records=bytes(builder.build())))
    topics = [ProduceRequest.TopicProduceData(name="many", partition_data=data)]
    answer = ask(address, ProduceRequest(acks=-1, timeout_ms=LIMIT_S * 1000, topic_data=topics), PRODUCE_VERSION)
    errors = {each.index: ErrorCode(each.error_code) for each in answer.responses[0].partition_responses}
    assert set(errors.values()) <= {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER}, set(errors.values())
    return [partition for partition, error in errors.items() if error == ErrorCode.NONE]


def leaders(cluster):
    states = cluster.partitions("many").values()
    return {node_id: sum(state.leader == node_id for state in states) for node_id in cluster.brokers}


def assert_replicas_hold(cluster, expected):
    """Checks that both directories have the same batches of each partition, and that these batches contain the
    values."""
    for topic, partition in WHICH:
        mine, theirs = (cluster.brokers[node_id].batches(topic, partition) for node_id in (MINE, THEIRS))
        assert mine == theirs, f"{topic}-{partition} differs between the brokers"
        found = [record.value for data in mine.values() for batch in Batches(data) for record in batch]
        assert found == expected[partition], f"{topic}-{partition}"


@pytest.mark.timeout(240)
def test_thousand_partitions_are_replicated_both_ways_through_sigkill_and_elections(cluster):
    half = PARTITIONS // 2
    cluster.create("many", [[MINE, THEIRS]] * half + [[THEIRS, MINE]] * half)
    assert leaders(cluster) == {MINE: half, THEIRS: half}
    written = [write(cluster, 0)]
    cluster.wait_in_sync("many", count=PARTITIONS)
    cluster.brokers[MINE].kill()
    cluster.wait(lambda: leaders(cluster)[THEIRS] == PARTITIONS, "all partitions led by Apache Kafka's broker")
    written.append(write(cluster, 1))
    cluster.brokers[MINE].start()
    # Makes our broker the preferred leader of all partitions.
    cluster.move({each: [MINE, THEIRS] for each in WHICH})
    cluster.prefer(WHICH)
    assert leaders(cluster) == {MINE: PARTITIONS, THEIRS: 0}
    written.append(write(cluster, 2))
    assert_replicas_hold(cluster, list(map(list, zip(*written, strict=True))))
    cluster.assert_no_errors()
