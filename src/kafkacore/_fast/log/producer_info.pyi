"""What a log remembers of its producers (DescribeProducers)."""

from typing import NamedTuple

from kafkacore._fast.log.partition_handle import PartitionHandle

class ProducerInfo(NamedTuple):
    """-1 where there is none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int

def producers_of(handle: PartitionHandle) -> list[ProducerInfo]:
    """By producer id."""
