"""A streaming sink that writes each batch exactly once, in one transaction.

Tasks only stage the rows: they encode the rows into record batches, and write these to files in a directory that all
tasks and the driver share. Then the driver makes the batch visible in one transaction:

1. The driver initializes the producer with the query's transactional id. From then on brokers refuse requests from
   earlier drivers of the query. The brokers also abort an open transaction of an earlier driver.
2. It reads the query's marker, the id of the last batch that was committed. If this is the current batch, the batch
   is complete.
3. In one transaction it sends the staged batches and a new marker, and commits.

If a driver dies between these steps, either the whole batch is visible or nothing of it. Spark then runs the batch
again, perhaps with other tasks. Step 2 must follow step 1: after step 1 no other driver can commit.
"""

import os
import pickle
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kafkacore.protocol.errors import KafkaError
from kafkacore.spark.connections import new_client, producer
from kafkacore.spark.errors import ExactlyOnceError
from kafkacore.spark.markers import Markers
from kafkacore.spark.options import SinkOptions
from kafkacore.spark.sink import RowWriting

TRANSACTION_TIMEOUT_MS: Final = 60_000
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


@dataclass
class Staged(WriterCommitMessage):
    """A task's message to the driver: the name of the file with the task's encoded batches, relative to the staging
    location."""

    query_id: str
    file: str | None  # None if the task had no rows
    rows: int
    size_bytes: int


class ExactlyOnceWriter(DataSourceStreamArrowWriter):
    """Writes for `df.writeStream.format("kafkacore").option("exactlyOnce", "true")`."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.options = options
        self.writing = RowWriting.of(options, schema)
        self.staging = Path(str(options.staging))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        query_id, batch_id = ids_of_task()
        # Each attempt of a task writes its own file, so a second attempt does not disturb the first. Only the file
        # whose name reaches the driver counts.
        name = f"{query_id}/{batch_id}/{uuid.uuid4()}"
        path = self.staging / name
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = 0
        with producer(self.options.kafka) as encoder, path.open("xb") as file:
            for batch in self.writing.batches(iterator):
                for encoded in encoder.encode(self.options.topic, None, batch):
                    pickle.dump(encoded, file, protocol=5)
                rows += batch.num_rows
            file.flush()
            os.fsync(file.fileno())
        size = path.stat().st_size
        if not rows:
            path.unlink()
        return Staged(query_id, name if rows else None, rows, size)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        staged = [message for message in messages if message is not None]
        if with_rows := [message for message in staged if message.rows]:
            self.commit_staged(with_rows, batchId)
        if staged:  # a task without rows has also made the directory
            shutil.rmtree(self.staging / staged[0].query_id / str(batchId), ignore_errors=True)

    def commit_staged(self, staged: Sequence[Staged], batch_id: int) -> None:
        query_id = staged[0].query_id
        options = {"transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS), **self.options.kafka}
        client = new_client(options)
        began = time.monotonic()
        try:
            sender = client.producer({"transactional.id": f"kafkacore-spark-{query_id}"})
            # Fences an earlier driver of the query, and waits until the transaction of that driver has ended.
            sender.begin()
            markers = Markers(client, self.options.marker_topic, query_id)
            if not is_committed(markers, batch_id):
                for message in staged:
                    for encoded in self.read_staged(message):
                        sender.send_encoded([encoded])
                markers.send(sender, batch_id)
                sender.commit()
        except ExactlyOnceError:
            with suppress(KafkaError, TimeoutError):
                sender.abort()  # otherwise consumers would wait until the transaction times out
            raise
        except (KafkaError, TimeoutError) as error:
            seconds, limit = time.monotonic() - began, int(options["transaction.timeout.ms"]) / 1000
            late = (
                f", after {seconds:.0f} s of the {limit:.0f} s of kafka.transaction.timeout.ms"
                if seconds >= limit
                else ""
            )
            raise ExactlyOnceError(
                f"batch {batch_id} of query {query_id} may not be committed{late}: {error}. Consumers with"
                " read_committed see all of its records or none. Restart the query: it writes the batch if it was not"
                " committed"
            ) from error
        finally:
            client.close()

    def read_staged(self, message: Staged) -> Iterator[Any]:
        path = self.staging / str(message.file)
        try:
            if path.stat().st_size != message.size_bytes:
                raise ExactlyOnceError(
                    f"the staged file {path} does not have the {message.size_bytes} bytes that its task wrote"
                )
            with path.open("rb") as file:
                while file.tell() < message.size_bytes:
                    yield pickle.load(file)  # noqa: S301 trusted: our own tasks wrote it
        except OSError as error:
            raise ExactlyOnceError(
                f"the driver cannot read the staged file {path} ({error}): stagingLocation must be a directory that the"
                " driver and all tasks share"
            ) from error

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        for message in messages:
            if message is not None and message.file is not None:
                (self.staging / message.file).unlink(missing_ok=True)


def is_committed(markers: Markers, batch_id: int) -> bool:
    """Returns whether the batch is already visible.

    :raises ExactlyOnceError: a later batch is visible, so the query uses an outdated checkpoint
    """
    committed = markers.last()
    if committed is not None and committed > batch_id:
        raise ExactlyOnceError(
            f"Kafka holds batch {committed} of query {markers.key.decode()}, but its checkpoint asks for batch"
            f" {batch_id}: the checkpoint is older than the topics; continue with the checkpoint that was used last"
        )
    return committed == batch_id


def ids_of_task() -> tuple[str, str]:
    """Returns the ids of the query and of the batch that this task belongs to."""
    context = TaskContext.get()
    query_id = context and context.getLocalProperty(_QUERY_ID)
    batch_id = context and context.getLocalProperty(_BATCH_ID)
    if not query_id or not batch_id:
        raise ExactlyOnceError(
            "Spark gives this task no query id and no batch id, so the sink could not recognise a rerun"
        )
    return str(query_id), str(batch_id)
