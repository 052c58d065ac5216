"""Makes topics for the tests of Spark. librdkafka fills them with records of every kind."""

import itertools

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

from processes import wait_until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Topics:
    """Makes topics with names derived from the name of the test, and fills them."""

    def __init__(self, bootstrap, prefix):
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.numbers = itertools.count(1)
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, partitions=1, config=None, name=None):
        name = name or f"{self.prefix}.{next(self.numbers)}"
        # The records of the tests have old timestamps. With the default of retention.ms, the broker would delete them
        # while a test reads them.
        new = NewTopic(name, partitions, 1, config={"retention.ms": "-1", **(config or {})})
        self.admin.create_topics([new])[name].result(30)
        wait_until(lambda: self.admin.list_topics(name, timeout=10).topics[name].partitions, what=f"topic {name}")
        return name

    def delete(self, name):
        self.admin.delete_topics([name])[name].result(30)
        wait_until(lambda: name not in self.admin.list_topics(timeout=10).topics, what=f"the deletion of {name}")

    def add_partitions(self, name, total):
        self.admin.create_partitions([NewPartitions(name, total)])[name].result(30)
        wait_until(lambda: len(self.admin.list_topics(name, timeout=10).topics[name].partitions) == total)

    def set_config(self, name, **config):
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, set_config=config)
        self.admin.alter_configs([resource])[resource].result(30)

    def delete_records(self, name, partition, before):
        from confluent_kafka import TopicPartition

        for done in self.admin.delete_records([TopicPartition(name, partition, before)]).values():
            done.result(30)

    def producer(self, **properties):
        # With at most one request in flight, a batch that a new leader rejects is retried before the next batch is
        # sent. So the records stay in order.
        ordered = {"max.in.flight.requests.per.connection": 1}
        return Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, **ordered, **properties})

    def fill(
        self, name, count, *, partitions=1, codec="none", size=20, headers=False, first=0,
        start_ms=1_700_000_000_000, null_keys=True,
    ):  # fmt: skip
        """Writes `count` records to each partition. Some of the keys and values are null, and the timestamps are one
        second apart."""
        refused = []
        producer = self.producer(**{"compression.type": codec, "batch.num.messages": 50})
        for partition in range(partitions):
            for number in range(first, first + count):
                producer.poll(0)
                producer.produce(
                    name,
                    key=None if null_keys and number % 5 == 4 else f"key-{number}".encode(),
                    value=None if number % 7 == 6 else (f"value-{number}-".encode() * (size // 8 + 1))[:size],
                    partition=partition,
                    timestamp=start_ms + number * 1000,
                    on_delivery=lambda error, record: refused.append(error) if error else None,
                    headers=[("h", b"1"), ("h", None), (f"n{number}", b"")] if headers and number % 3 == 0 else None,
                )
        assert producer.flush(60) == 0
        assert refused == []
        return name
