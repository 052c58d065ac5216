"""Kafka Connect 4.3 in distributed mode: groups with the protocol type "connect", Connect's compacted topics, and its
commits.
"""

import pytest

from connect_worker import PATIENCE_S, Worker
from processes import wait_until

LINES = [f"line {number}" for number in range(500)]


@pytest.fixture
def worker(broker, topic_name, tmp_path):
    one = Worker(broker.bootstrap, topic_name, tmp_path)
    yield one
    one.child.terminate()


def test_connect_worker_resumes_where_its_predecessor_stopped(worker, broker, topic_name, tmp_path):
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    sink.touch()

    def carried():
        return sink.read_text().splitlines()

    source.write_text("".join(f"{line}\n" for line in LINES[:300]))
    worker.settle("source", **{"connector.class": "FileStreamSource", "file": str(source), "topic": topic_name})
    worker.settle("sink", **{"connector.class": "FileStreamSink", "file": str(sink), "topics": topic_name})
    wait_until(lambda: carried() == LINES[:300], PATIENCE_S, "the first lines in the sink's file")
    wait_until(
        lambda: worker.offsets("source") == [{"position": source.stat().st_size}], PATIENCE_S, "the source's offset"
    )
    wait_until(lambda: worker.offsets("sink") == [{"kafka_offset": 300}], PATIENCE_S, "the sink's offset")
    worker.child.terminate()

    with source.open("a") as more:
        more.writelines(f"{line}\n" for line in LINES[300:])
    successor = Worker(broker.bootstrap, topic_name, tmp_path)
    try:
        wait_until(lambda: carried() == LINES, PATIENCE_S, "all lines in the sink's file, none of them twice")
        wait_until(lambda: successor.offsets("sink") == [{"kafka_offset": 500}], PATIENCE_S, "the sink's offset")
    finally:
        successor.child.terminate()
