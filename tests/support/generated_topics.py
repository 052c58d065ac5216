"""Topics whose configuration and records come from a seed: every kind of key, value, header, timestamp and codec, and,
on request, transactions. The log has gaps if the topic is compacted, has aborted transactions, or lost its
beginning."""

import time
from random import Random

from confluent_kafka import Consumer, TopicPartition

from processes import wait_until
from topic_filling import CODECS

START_MS = 1_700_000_000_000
STEP_MS = 1_000_000  # segments roll by timestamps, so each step begins a segment
SEGMENT_MS = 100_000
KEYS = [f"key-{number}".encode() for number in range(8)]
HEADER_NAMES = ("h", "trace-id", "", "größe")
LARGE = 60_000


class GeneratedTopic:
    """Creates and fills a topic. `topics` is a `Topics`. `offsets` has the offsets that a consumer can read."""

    def __init__(self, topics, seed, *, transactions=False):
        self.topics, self.random = topics, Random(seed)
        self.partitions = self.random.randint(1, 4)
        self.compacted = self.random.random() < 0.4
        self.isolation = self.random.choice(("read_committed", "read_uncommitted"))
        self.name = topics.create(self.partitions, self._config())
        self.transactional = self._transactional() if transactions else None
        for step in range(self.random.randint(6, 10)):
            self._step(step)
        if self.compacted:
            self._compact()
        elif self.random.random() < 0.5:
            self._lose_beginning()
        self.offsets = [(partition, offset) for partition, offset, _ in self._readable()]

    def _config(self):
        config = {"segment.ms": str(SEGMENT_MS)}
        if self.compacted:
            return config | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        return config | {"message.timestamp.type": self.random.choice(("CreateTime", "LogAppendTime"))}

    def _transactional(self):
        codec = self.random.choice(CODECS)
        producer = self.topics.producer(**{"transactional.id": self.name, "compression.type": codec})
        producer.init_transactions(30)
        return producer

    # --- records ---

    def _step(self, step):
        """Writes records to random partitions, in a transaction or not."""
        in_transaction = self.transactional is not None and self.random.random() < 0.6
        codec = self.random.choice(CODECS)
        producer = self.transactional if in_transaction else self.topics.producer(**{"compression.type": codec})
        if in_transaction:
            producer.begin_transaction()
        for _ in range(self.random.randint(1, 60)):
            self._produce(producer, START_MS + step * STEP_MS + self.random.randrange(SEGMENT_MS // 2))
        assert producer.flush(60) == 0
        if in_transaction and self.random.random() < 0.4:
            producer.abort_transaction(30)
        elif in_transaction:
            producer.commit_transaction(30)

    def _produce(self, producer, timestamp_ms, partition=None):
        random = self.random
        producer.poll(0)
        producer.produce(
            self.name,
            key=self._key(),
            value=self._value(),
            headers=self._headers(),
            partition=random.randrange(self.partitions) if partition is None else partition,
            timestamp=timestamp_ms,
            on_delivery=_must_succeed,
        )

    def _key(self):
        kind = self.random.randrange(1 if self.compacted else 4)
        return (self.random.choice(KEYS), None, b"", self.random.randbytes(self.random.randint(1, 50)))[kind]

    def _value(self):
        kind = self.random.choices(range(5), (5, 2, 1, 4, 0.3))[0]
        length = (0, 0, 0, self.random.randint(1, 3000), LARGE)[kind]
        return ("größe €".encode(), None, b"", self.random.randbytes(length), self.random.randbytes(length))[kind]

    def _headers(self):
        if self.random.random() < 0.6:
            return None
        values = (None, b"", b"1", self.random.randbytes(20))
        return [(self.random.choice(HEADER_NAMES), self.random.choice(values)) for _ in range(self.random.randrange(4))]

    # --- gaps ---

    def _compact(self):
        """Waits until the cleaner has compacted each log up to its last segment, and stops the cleaner. Otherwise it
        could change a log between two reads."""
        producer = self.topics.producer()
        # Markers of transactions have the present as their timestamp, so the log rolls only for later timestamps.
        now_ms = time.time_ns() // 1_000_000
        for partition in range(self.partitions):
            for extra in (1, 2):  # the second of these records is the only one in the last segment
                self._produce(producer, now_ms + extra * STEP_MS, partition)
                assert producer.flush(60) == 0
        wait_until(self._is_compact, timeout_s=60, what=f"compaction of {self.name}")
        self.topics.set_config(self.name, **{"cleanup.policy": "delete", "retention.ms": "-1"})
        seen = []

        def is_settled():
            seen.append(self._readable())
            return len(seen) > 2 and seen[-1] == seen[-2] == seen[-3]

        wait_until(is_settled, timeout_s=60, what="the end of the last compaction")

    def _is_compact(self):
        keys = {partition: [] for partition in range(self.partitions)}
        for partition, _, key in self._readable():
            keys[partition].append(key)
        return all(len(set(each[:-1])) == len(each[:-1]) for each in keys.values())

    def _lose_beginning(self):
        offsets = [offset for partition, offset, _ in self._readable() if partition == 0]
        if offsets:
            self.topics.delete_records(self.name, 0, self.random.choice(offsets))

    def _readable(self):
        """Returns partition, offset and key of each record that a consumer reads."""
        consumer = Consumer({
            "bootstrap.servers": self.topics.bootstrap, "group.id": "none", "enable.auto.commit": False,
            "enable.partition.eof": True, "auto.offset.reset": "earliest", "isolation.level": self.isolation,
        })  # fmt: skip
        consumer.assign([TopicPartition(self.name, partition, 0) for partition in range(self.partitions)])
        found, ended = [], set()
        try:
            while len(ended) < self.partitions:
                record = consumer.poll(30)
                assert record is not None, f"{self.name}: no record and no end within 30 s"
                if record.error():
                    ended.add(record.partition())
                else:
                    found.append((record.partition(), record.offset(), record.key()))
        finally:
            consumer.close()
        return sorted(found, key=lambda record: record[:2])


def _must_succeed(error, _record):
    assert error is None, error
