"""Tasks of a read: several ranges in one task, and what is read when some of the records are lost."""

import contextlib
import os
import pickle
import socket
import subprocess
import sys

import pytest

pytest.importorskip("pyspark", "4.0", reason="no PySpark: pip install kafkacore[spark], or ci/spark.sh")

import pyarrow as pa
from pyspark.sql.types import IntegerType, StructField, StructType

from kafkacore.client import OffsetOutOfRange, PartitionMissing, Range, TopicMissing
from kafkacore.spark import tasks
from kafkacore.spark.errors import DataLossError
from kafkacore.spark.workers import acknowledge_at_once

RANGES = [Range("a", 0, 0, 5), Range("b", 0, 0, 7), Range("b", 1, 3, 9), Range("c", 0, 0, 2)]


class Reads:
    """A stub of the client. Each range gives a batch with one row, its end offset. `lost` has errors by topic. The
    ranges of these topics give no batch."""

    def __init__(self, lost=None):
        self.lost = lost or {}

    def read(self, ranges, columns, isolation_level, *, on_lost):
        for one in ranges:
            if one.topic not in self.lost:
                yield pa.record_batch({"partition": pa.array([one.end], pa.int32())})
            elif on_lost is None:
                raise self.lost[one.topic]
            else:
                on_lost(self.lost[one.topic])


def ends(monkeypatch, reads, *, fail_on_data_loss):
    monkeypatch.setattr(tasks, "client", lambda kafka: contextlib.nullcontext(reads))
    monkeypatch.setattr(tasks, "exempt_modules_from_collection", lambda: None)
    schema = StructType([StructField("partition", IntegerType())])
    reading = tasks.RangeReading({}, schema, fail_on_data_loss)
    [task] = tasks.tasks(RANGES, 1000)
    return sorted(batch.column(0)[0].as_py() for batch in reading.read(task))


def test_a_task_reads_all_its_ranges(monkeypatch):
    assert ends(monkeypatch, Reads(), fail_on_data_loss=True) == [2, 5, 7, 9]


def test_other_topics_are_read_when_one_is_lost(monkeypatch, capsys):
    reads = Reads({"a": TopicMissing("a")})
    assert ends(monkeypatch, reads, fail_on_data_loss=False) == [2, 7, 9]
    assert "records are lost, and failOnDataLoss=false: topic a does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "named", "not_named"),
    [
        (TopicMissing("b"), ["b-0 from offset 0 to 7", "b-1 from offset 3 to 9"], "a-0"),
        (PartitionMissing("b", 1, 1), ["b-1 from offset 3 to 9"], "b-0 from"),
        (OffsetOutOfRange("b", 0, 4, 7, 5, 9), ["b-0 from offset 0 to 7", "the log has 5 to 9"], "b-1"),
    ],
)
def test_lost_records_are_named_with_their_ranges(monkeypatch, error, named, not_named):
    with pytest.raises(DataLossError) as raised:
        ends(monkeypatch, Reads({"b": error}), fail_on_data_loss=True)
    assert all(each in str(raised.value) for each in named)
    assert not_named not in str(raised.value)


def test_the_collector_ignores_the_objects_of_modules_once_a_task_has_begun():
    program = (
        "import gc; from kafkacore.spark.workers import exempt_modules_from_collection as exempt; exempt();"
        " first = gc.get_freeze_count(); kept = [[] for _ in range(100_000)]; exempt();"
        " assert 0 < first == gc.get_freeze_count(), (first, gc.get_freeze_count())"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_unpickled_task_acknowledges_received_bytes_at_once():
    reading = pickle.dumps(tasks.RangeReading({"a": "b"}, StructType([]), True))
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        assert pickle.loads(reading).kafka == {"a": "b"}
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1
        assert connection.send(b"x") == 1  # the socket is still open


def test_sockets_stay_blocking_when_there_is_a_default_timeout():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.setdefaulttimeout(30)
        try:
            acknowledge_at_once()
        finally:
            socket.setdefaulttimeout(None)
        assert os.get_blocking(server.fileno())
