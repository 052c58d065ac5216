"""Repeated SIGKILL at any moment while a producer writes. After each restart, the broker has every acknowledged
record."""

import contextlib
import os
import random
import threading

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from processes import wait_until
from seeds import SEED

KILLS = int(os.environ.get("KAFKACORE_SIGKILLS", "5"))
PARTITIONS = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MOST_BETWEEN_KILLS = 5000
PATIENCE_S = 60
# The approximate time for one kill on a slow machine, including the restart of the node.
SECONDS_A_KILL = 30


class Writer:
    """Produces numbered values on a separate thread until `finish`. Stores the acknowledged values with their
    offsets."""

    def __init__(self, bootstrap, codec, choices):
        self.acknowledged = [{} for _ in range(PARTITIONS)]
        self.sent = [[] for _ in range(PARTITIONS)]
        self.fatal = []
        self.stopping, self.producing = threading.Event(), threading.Event()
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
            self.producing.wait()
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
        """Waits until `more` further records are acknowledged, while others are in flight."""
        self.producing.set()
        enough = sum(map(len, self.acknowledged)) + more
        what = f"{more} more acknowledgements, KAFKACORE_SEED={SEED}"
        wait_until(lambda: sum(map(len, self.acknowledged)) >= enough, PATIENCE_S, what)
        # Stops the writer first. Some requests are then in flight during the kill. A writer that continued would write
        # faster than the check can read.
        self.producing.clear()

    def finish(self):
        """Stops producing, and waits until all sent records are acknowledged."""
        self.stopping.set()
        self.producing.set()
        self.thread.join(PATIENCE_S)
        assert self.producer.flush(PATIENCE_S) == 0, f"records were never acknowledged, KAFKACORE_SEED={SEED}"
        assert not self.fatal, f"{self.fatal[:3]}, KAFKACORE_SEED={SEED}"


def read(bootstrap, partition, start, end):
    """Returns the values at the offsets from `start` up to, but not including, `end`."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "check.crcs": True,
        "auto.offset.reset": "error", "log_level": 0,
    })  # fmt: skip
    consumer.assign([TopicPartition("survivor", partition, start)])
    found = []
    while len(found) < end - start:
        messages = consumer.consume(min(10_000, end - start - len(found)), PATIENCE_S)
        assert messages, f"partition {partition}: no record at {start + len(found)} of {end}, KAFKACORE_SEED={SEED}"
        for message in messages:
            assert not message.error(), f"{message.error()}, KAFKACORE_SEED={SEED}"
            assert message.offset() == start + len(found), (
                f"offset {message.offset()} in the wrong order, KAFKACORE_SEED={SEED}"
            )
            found.append(message.value())
    consumer.close()
    return found


def check(bootstrap, partition, acknowledged, start):
    """Checks from offset `start` on that each acknowledged record is at its offset, once, in the order of sending.
    Returns the end offset."""
    end = max(acknowledged, default=-1) + 1
    found = read(bootstrap, partition, start, end)
    lost = [o for o, value in acknowledged.items() if o >= start and found[o - start] != value]
    assert not lost, (
        f"partition {partition}: {len(lost)} acknowledged records lost, first offset {lost[0]}, KAFKACORE_SEED={SEED}"
    )
    # Only this writer writes to the topic, and it numbers the records of each partition from 0. So numbers and offsets
    # are equal.
    numbers = [int(value.split(b":")[1]) for value in found]
    assert numbers == list(range(start, end)), f"partition {partition}: doubled or reordered, KAFKACORE_SEED={SEED}"
    return end


@pytest.mark.timeout(120 + KILLS * SECONDS_A_KILL)
def test_no_acknowledged_record_is_lost(fresh_broker):
    choices = random.Random(SEED)
    # The segments are small, so kills also happen during rolls and writes of indexes and producer snapshots.
    broker = fresh_broker({"log.segment.bytes": "1048576", "log.index.interval.bytes": "1024"})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("survivor", PARTITIONS, 1)])["survivor"].result(PATIENCE_S)
    writer = Writer(broker.bootstrap, choices.choice(CODECS), random.Random(SEED + 1))
    checked = [0] * PARTITIONS
    for number in range(KILLS):
        writer.acknowledges(choices.randrange(1, MOST_BETWEEN_KILLS))
        broker.kill()
        broker.start()
        partition = number % PARTITIONS
        checked[partition] = check(
            broker.bootstrap, partition, dict(writer.acknowledged[partition]), checked[partition]
        )
    writer.finish()
    # Checks all records again, because a later recovery must not damage records that an earlier one kept.
    total = sum(
        check(broker.bootstrap, partition, writer.acknowledged[partition], 0) for partition in range(PARTITIONS)
    )
    assert total == sum(map(len, writer.sent)) > 0
    print(f"{KILLS} kills, {total} records, KAFKACORE_SEED={SEED}")
