"""The data client with three of our nodes, while the test kills leaders and starts them again."""

from __future__ import annotations

import pytest

from kafkacore.client import LATEST, Client, Range
from kafkacore.testing import Cluster

pa = pytest.importorskip("pyarrow", reason="no PyArrow: pip install kafkacore[spark], or ci/spark.sh")
pytestmark = pytest.mark.timeout(120)
PARTITIONS = 6
ROUNDS = 30
OPTIONS = {"request.timeout.ms": "3000", "retry.backoff.ms": "20", "reconnect.backoff.max.ms": "100"}


@pytest.fixture(scope="module")
def cluster():
    with Cluster(controllers=1, brokers=3) as made:
        made.create_topic("moved", PARTITIONS, replication_factor=3)
        yield made


def test_nothing_is_lost_or_doubled_when_leaders_are_killed_while_rows_are_written_and_read(cluster):
    written = {partition: [] for partition in range(PARTITIONS)}
    with Client(cluster.bootstrap, OPTIONS) as writer, writer.producer({"batch.size": "2000"}) as producer:
        for number in range(ROUNDS):
            for partition, rows in written.items():
                values = [b"%d-%d-%d" % (partition, number, i) for i in range(50)]
                producer.send("moved", partition, pa.record_batch({"value": values}))
                rows.extend(values)
            if number % 10 == 3:
                killed = cluster.leader("moved", number % PARTITIONS)
                killed.kill()
                producer.flush()
                killed.start()
                cluster.wait_until_ready()
        producer.flush()
    with Client(cluster.bootstrap, OPTIONS) as reader:
        ends = reader.offsets({("moved", partition): LATEST for partition in range(PARTITIONS)})
        ranges = [Range(topic, partition, 0, ends[topic, partition].offset) for topic, partition in ends]
        found = {partition: [] for partition in range(PARTITIONS)}
        killed = None
        for rows in reader.read(ranges, ["partition", "value"], max_rows=40):
            batch = pa.record_batch(rows)
            found[batch.column("partition")[0].as_py()] += batch.column("value").to_pylist()
            if killed is None:
                killed = cluster.leader("moved", 0)
                killed.kill()
        killed.start()
    assert found == written
