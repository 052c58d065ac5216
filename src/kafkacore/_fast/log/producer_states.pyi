from typing import NamedTuple

from kafkacore._fast.log.partition_handle import PartitionHandle

class ProducerState(NamedTuple):
    """The state of one producer. `last_sequence` is -1 if no batch of the producer is known. `transaction_first_offset`
    is -1 if no transaction is open."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int

def producer_states(handle: PartitionHandle) -> list[ProducerState]:
    """Returns the states of a partition's producers, in no particular order. Raises MemoryError."""

def producer_counts(handle: PartitionHandle) -> tuple[int, int]:
    """Returns the number of producers that the partition knows, and a time in ms. At this time, the producer whose
    transaction has been open longest wrote its last batch. The time is -1 if no transaction is open."""
