"""A client for data: reads ranges of partitions as Arrow batches, and writes Arrow batches.

    with Client("localhost:9092") as client:
        for rows in client.read([Range("orders", 0, 0, 1000)]):
            batch = pyarrow.record_batch(rows)

The calls of a client block. A client has no threads, and only one thread may use it at a time. Its options are Kafka's
client keys.
"""

from kafkacore.client.client import Client
from kafkacore.client.errors import (
    ClientError,
    OffsetOutOfRange,
    OptionError,
    PartitionMissing,
    RecordTooLarge,
    ServerNotTrusted,
    TopicMissing,
    TopicRecreated,
    Unreachable,
)
from kafkacore.client.producer import Encoded, Producer
from kafkacore.client.types import EARLIEST, LATEST, Offset, Partition, Range, Topic

__all__ = [
    "EARLIEST",
    "LATEST",
    "Client",
    "ClientError",
    "Encoded",
    "Offset",
    "OffsetOutOfRange",
    "OptionError",
    "Partition",
    "PartitionMissing",
    "Producer",
    "Range",
    "RecordTooLarge",
    "ServerNotTrusted",
    "Topic",
    "TopicMissing",
    "TopicRecreated",
    "Unreachable",
]
