"""SIGKILL at any moment during produce, again and again: what was acknowledged is there after each start.

KAFKACORE_SIGKILLS is how often (a release is held to 200); KAFKACORE_SIGKILL_SEED repeats the choices of a run.
"""

import contextlib
import os
import random
import threading
import time

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from processes import wait_until

KILLS = int(os.environ.get("KAFKACORE_SIGKILLS", "5"))
SEED = int(os.environ.get("KAFKACORE_SIGKILL_SEED", "0")) or time.time_ns()
PARTITIONS = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MOST_BETWEEN_KILLS = 5000
PATIENCE_S = 60
# About what one kill costs, node's start included, on a slow machine.
SECONDS_A_KILL = 20


class Writer:
    """Produces numbered values from a thread of its own until told to stop; remembers what was acknowledged where."""

    def __init__(self, bootstrap, codec, choices):
        self.acknowledged = [{} for _ in range(PARTITIONS)]
        self.sent = [[] for _ in range(PARTITIONS)]
        self.fatal = []
        self.stopping = threading.Event()
        self.choices = choices
        self.producer = Producer({
            "bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all",
            "compression.type": codec, "linger.ms": 1, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 50,
            "retry.backoff.ms": 20, "message.timeout.ms": 0,
            "queue.buffering.max.messages": 5000, "log_level": 0, "error_cb": self.failed,
        })  # fmt: skip
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def failed(self, error):
        if error.fatal():
            self.fatal.append(str(error))

    def run(self):
        while not self.stopping.is_set():
            partition = self.choices.randrange(PARTITIONS)
            value = b"%d:%d:" % (partition, len(self.sent[partition])) + b"x" * self.choices.randrange(400)
            with contextlib.suppress(BufferError):
                self.producer.produce("survivor", value, partition=partition, on_delivery=self.delivered)
                self.sent[partition].append(value)
            self.producer.poll(0 if len(self.producer) < 4000 else 0.01)

    def delivered(self, error, message):
        if error is None:
            self.acknowledged[message.partition()][message.offset()] = message.value()
        else:
            self.fatal.append(str(error))

    def acknowledges(self, more):
        """Returns when so many more records were acknowledged, with others under way."""
        enough = sum(map(len, self.acknowledged)) + more
        what = f"{more} more acknowledgements, seed {SEED}"
        wait_until(lambda: sum(map(len, self.acknowledged)) >= enough, PATIENCE_S, what)

    def finish(self):
        """Stops producing and waits until everything sent is acknowledged."""
        self.stopping.set()
        self.thread.join(PATIENCE_S)
        assert self.producer.flush(PATIENCE_S) == 0, f"records were never acknowledged, seed {SEED}"
        assert not self.fatal, f"{self.fatal[:3]}, seed {SEED}"


def read(bootstrap, partition):
    """All values of a partition, up to its end."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "check.crcs": True,
        "enable.partition.eof": True, "auto.offset.reset": "error",
    })  # fmt: skip
    consumer.assign([TopicPartition("survivor", partition, 0)])
    found, deadline = [], time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < deadline, f"partition {partition}: no end after {len(found)} records, seed {SEED}"
        # It waits for that many or for that long, also when the end was reached.
        for message in consumer.consume(1000, 0.1):
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF, f"{message.error()}, seed {SEED}"
                consumer.close()
                return found
            assert message.offset() == len(found), f"offset {message.offset()} after {len(found)}, seed {SEED}"
            found.append(message.value())


def check(bootstrap, partition, acknowledged):
    """Each acknowledged record at its offset; each record once; in the order it was sent."""
    found = read(bootstrap, partition)
    lost = [offset for offset, value in acknowledged.items() if offset >= len(found) or found[offset] != value]
    assert not lost, (
        f"partition {partition}: {len(lost)} acknowledged records lost, first offset {lost[0]}, seed {SEED}"
    )
    numbers = [int(value.split(b":")[1]) for value in found]
    assert numbers == list(range(len(numbers))), f"partition {partition}: doubled or reordered, seed {SEED}"
    return len(found)


@pytest.mark.timeout(60 + KILLS * SECONDS_A_KILL)
def test_nothing_acknowledged_is_lost(fresh_broker):
    choices = random.Random(SEED)
    # Small segments: rolls, indexes and producer snapshots are cut in the middle too.
    broker = fresh_broker({"log.segment.bytes": "1048576", "log.index.interval.bytes": "1024"})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("survivor", PARTITIONS, 1)])["survivor"].result(PATIENCE_S)
    writer = Writer(broker.bootstrap, choices.choice(CODECS), random.Random(SEED + 1))
    for number in range(KILLS):
        writer.acknowledges(choices.randrange(1, MOST_BETWEEN_KILLS))
        broker.kill()
        before = [dict(one) for one in writer.acknowledged]
        broker.start()
        partition = number % PARTITIONS
        check(broker.bootstrap, partition, before[partition])
    writer.finish()
    total = sum(check(broker.bootstrap, partition, writer.acknowledged[partition]) for partition in range(PARTITIONS))
    assert total == sum(map(len, writer.sent)) > 0
    print(f"{KILLS} kills, {total} records, seed {SEED}")
