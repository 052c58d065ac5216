from typing import NamedTuple

from kafkacore._fast.log.partition_handle import PartitionHandle

class ProducerState(NamedTuple):
    """`last_sequence` is -1 when no batch of the producer is known. `transaction_first_offset` is -1 when no
    transaction is open."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int

def producer_states(handle: PartitionHandle) -> list[ProducerState]:
    """The states of a partition's producers, in no particular order. Raises MemoryError."""

def producer_counts(handle: PartitionHandle) -> tuple[int, int]:
    """How many producers the partition knows, and the time of the last batch of the one whose transaction has been open
    longest, in ms; -1: no transaction is open."""
