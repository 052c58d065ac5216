"""If a Fetch contains an unknown partition, it still waits for its whole `max_wait_ms`. Otherwise the client would get
an answer immediately, and send the next request immediately.
"""

import time

from attacks import attack, fetch
from brokers import Node
from kafkacore.protocol.errors import ErrorCode

WAIT_MS = 700


def test_fetch_waits_when_it_names_an_unknown_partition_beside_a_known_one(node: Node) -> None:
    """As in KafkaApis and DelayedFetch, the unknown partition gets its error, but the request still waits for the other
    partition."""
    began_s = time.monotonic()
    answer = attack(node.bootstrap, fetch({"attacked": [0], "deleted": [0]}, WAIT_MS))
    assert time.monotonic() - began_s >= 0.9 * WAIT_MS / 1000
    told = {topic.topic: topic.partitions[0].error_code for topic in answer.responses}
    assert told == {"attacked": ErrorCode.NONE, "deleted": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
