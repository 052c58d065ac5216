"""A stream that copies a topic while its tasks, its driver and its broker are killed. No record is missing, and only
records of batches that were not committed are copied twice.

KAFKACORE_SPARK_KILLS is the number of kills (default 3, one of each kind; 20 before a release).
"""

import itertools
import json
import os
import signal
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark", "4.2", reason="streams need PySpark 4.2: pip install kafkacore[spark], or ci/spark.sh")

import pyarrow as pa

from brokers import Node
from kafkacore.client import LATEST, Client, Range
from processes import ROOT, Child, wait_until
from spark_session import need_spark
from topic_filling import Topics

KILLS = int(os.environ.get("KAFKACORE_SPARK_KILLS", "3"))
PARTITIONS = 4
START_S = 120  # a busy machine needs this long to start Spark
pytestmark = pytest.mark.timeout(300 + 60 * KILLS)


class Load(threading.Thread):
    """Writes a few records every few milliseconds until it is stopped. librdkafka retries while the broker is down."""

    def __init__(self, topics, topic):
        super().__init__(daemon=True)
        self.producer = topics.producer(**{"enable.idempotence": True, "message.timeout.ms": 300_000})
        self.topic, self.ended, self.refused = topic, threading.Event(), []

    def run(self):
        for number in itertools.count():
            if self.ended.wait(0.01):
                break
            for partition in range(PARTITIONS):
                self.producer.produce(
                    self.topic, b"%d" % number, partition=partition,
                    on_delivery=lambda error, _: self.refused.append(error) if error else None,
                )  # fmt: skip
            self.producer.poll(0)
        assert self.producer.flush(60) == 0


class Checkpoint:
    """Spark's checkpoint of a query: its files name the planned and the committed batches."""

    def __init__(self, directory, topic):
        self.directory, self.topic = directory, topic

    def last(self, kind):
        """Returns the newest batch in `offsets` or `commits`, or -1."""
        names = [path.name for path in (self.directory / kind).glob("*")]
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def end_of(self, batch):
        """Returns the end offset of each partition in a batch."""
        if batch < 0:
            return {}
        # The lines are a version, the metadata, and the offset of each source.
        offsets = json.loads((self.directory / "offsets" / str(batch)).read_text().splitlines()[2])
        return {int(partition): end for partition, end in offsets[self.topic].items()}

    def records_of(self, batch):
        """Returns the records of a batch, as the query writes them."""
        start, end = self.end_of(batch - 1), self.end_of(batch)
        return {f"{which}:{at}" for which in end for at in range(start.get(which, 0), end[which])}


class Copying:
    """The query in its own process, and its broker. Each kill waits until a batch is in progress."""

    def __init__(self, directory, node, source, target):
        self.directory, self.node = directory, node
        self.arguments = (node.bootstrap, source, target, directory)
        self.checkpoint = Checkpoint(directory / "checkpoint", source)
        self.open_batches = set()  # batches that were not committed when something was killed
        self.start()

    def start(self):
        program = ROOT / "tests" / "support" / "copying_query.py"
        self.driver = Child([sys.executable, program, *self.arguments], self.directory / "driver.log")

    def wait_commit(self):
        before = self.checkpoint.last("commits")
        self.driver.wait_ready(lambda: self.checkpoint.last("commits") > before, START_S, "another committed batch")

    def wait_open_batch(self):
        self.driver.wait_ready(
            lambda: self.checkpoint.last("offsets") > self.checkpoint.last("commits"), START_S, "a batch in progress"
        )

    def kill(self, kind):
        self.wait_commit()
        self.wait_open_batch()
        before = self.checkpoint.last("commits")
        kind(self)
        # While something was being killed, the batch in progress may have ended, and the next may have begun.
        self.open_batches |= set(range(before + 1, self.checkpoint.last("offsets") + 1))

    def kill_driver(self):
        self.driver.kill()
        self.open_batches |= set(range(self.checkpoint.last("commits") + 1, self.checkpoint.last("offsets") + 1))
        self.start()

    def kill_task(self):
        wait_until(self.kill_workers, START_S, "a Python worker of a task")

    def kill_workers(self):
        """Kills the Python processes that run tasks. Returns how many it killed."""
        killed = 0
        for process in Path("/proc").iterdir():
            if process.name.isdigit() and is_worker(process, self.driver.pid):
                os.kill(int(process.name), signal.SIGKILL)
                killed += 1
        return killed

    def kill_broker(self):
        self.node.kill()
        self.node.start()


def is_worker(process, driver):
    """Returns whether a process is a worker of this driver: a child of the daemon that the driver's JVM has started."""
    try:
        daemon = parent_of(process)
        is_forked = (
            b"pyspark.worker" in (process / "cmdline").read_bytes()
            and b"pyspark.worker" in (daemon / "cmdline").read_bytes()
        )
        return is_forked and parent_of(parent_of(daemon)).name == str(driver)
    except OSError:
        return False  # the process has ended meanwhile


def parent_of(process):
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return Path("/proc") / fields[1]


def values(client, topic, partitions):
    ends = client.offsets(dict.fromkeys(((topic, number) for number in range(partitions)), LATEST))
    ranges = [Range(*which, 0, end.offset) for which, end in ends.items()]
    rows = client.read(ranges, ["partition", "offset", "value"])
    return [row for each in rows for row in pa.record_batch(each).to_pylist()]


def test_no_record_is_missing_and_only_open_batches_are_doubled_when_something_is_killed(tmp_path):
    need_spark()
    node = Node(tmp_path / "node")
    topics = Topics(node.bootstrap, "copied")
    source, target = topics.create(PARTITIONS), topics.create(1)
    load = Load(topics, source)
    load.start()
    copying = Copying(tmp_path, node, source, target)
    try:
        kinds = itertools.cycle([Copying.kill_task, Copying.kill_driver, Copying.kill_broker])
        for kind in itertools.islice(kinds, KILLS):
            copying.kill(kind)
        copying.wait_commit()
        load.ended.set()
        load.join()
        assert load.refused == []
        with Client(node.bootstrap) as client:
            sent = {f"{row['partition']}:{row['offset']}" for row in values(client, source, PARTITIONS)}

            def copied():
                return Counter(row["value"].decode() for row in values(client, target, 1))

            copying.driver.wait_ready(lambda: copied().keys() >= sent, START_S, "a copy of every record")
            found = copied()
    finally:
        copying.driver.kill()
        node.stop()
    assert found.keys() == sent
    allowed = set().union(*map(copying.checkpoint.records_of, copying.open_batches))
    assert {value for value, times in found.items() if times > 1} <= allowed


def test_a_checkpoint_names_the_records_of_a_batch(tmp_path):
    for batch, ends in enumerate(('{"t":{"0":2,"1":1}}', '{"t":{"0":2,"1":3}}')):
        (tmp_path / "offsets").mkdir(exist_ok=True)
        (tmp_path / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{ends}")
    checkpoint = Checkpoint(tmp_path, "t")
    assert checkpoint.last("offsets") == 1
    assert checkpoint.last("commits") == -1
    assert checkpoint.records_of(0) == {"0:0", "0:1", "1:0"}
    assert checkpoint.records_of(1) == {"1:1", "1:2"}
