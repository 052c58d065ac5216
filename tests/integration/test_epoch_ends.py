"""OffsetForLeaderEpoch: the end offset of an epoch, and the answers to invalid requests."""

import pytest

from asking import ask
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import OffsetForLeaderEpochRequest
from kafkacore.testing import Broker

VERSION = 4
NONE = ErrorCode.NONE


@pytest.fixture(scope="module")
def broker():
    """Starts a broker. The broker leads partition 0 in epoch 5. The log of this partition has two records of epoch 0
    and one of epoch 5. The broker is a follower of partition 1."""
    with Broker() as broker:
        broker.create_topic("t", partitions=2)
        broker.produce("t", b"a", partition=0)
        broker.produce("t", b"b", partition=0)
        led, followed = (broker.node.broker.replicas.by_name("t", index) for index in range(2))
        led.become_leader(broker.node.config.node_id, 5, led.partition_epoch + 1)
        broker.produce("t", b"c", partition=0)
        followed.become_follower(2, 5, followed.partition_epoch + 1)
        yield broker


def end_of(broker, epoch, *, topic="t", partition=0, current=-1):
    """Returns from the response: the error code, the epoch, and the end offset of that epoch."""
    made = OffsetForLeaderEpochRequest
    asked = made.OffsetForLeaderPartition(partition=partition, leader_epoch=epoch, current_leader_epoch=current)
    request = made(replica_id=-1, topics=[made.OffsetForLeaderTopic(topic=topic, partitions=[asked])])
    [found] = ask(broker.bootstrap, request, VERSION).topics[0].partitions
    assert found.partition == partition
    return ErrorCode(found.error_code), (found.leader_epoch, found.end_offset)


@pytest.mark.parametrize(
    ("epoch", "end"), [(0, (0, 2)), (3, (0, 2)), (5, (5, 3)), (6, (-1, -1)), (-1, (-1, -1)), (-7, (-1, -1))]
)
@pytest.mark.parametrize("current", [-1, 5])
def test_epoch_ends_where_the_next_one_began(broker, epoch, end, current):
    assert end_of(broker, epoch, current=current) == (NONE, end)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"current": 4}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"current": 6}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"partition": 1}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({"partition": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_question_is_refused_when_its_epoch_or_partition_is_wrong(broker, fields, error):
    assert end_of(broker, 0, **fields) == (error, (-1, -1))
