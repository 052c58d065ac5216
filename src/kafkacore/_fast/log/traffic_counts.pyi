from collections.abc import Iterable
from typing import NamedTuple

from kafkacore._fast.log.partition_handle import PartitionHandle

class TrafficCounts(NamedTuple):
    """The sums of the counts of several partitions. `traffic.pxd` gives the meaning of each field."""

    produces: int = 0
    failed_produces: int = 0
    messages_in: int = 0
    bytes_in: int = 0
    bytes_rejected: int = 0
    conversions: int = 0
    no_key: int = 0
    bad_magic: int = 0
    bad_checksum: int = 0
    bad_offsets: int = 0
    replication_in: int = 0
    reassignment_in: int = 0
    fetches: int = 0
    failed_fetches: int = 0
    bytes_out: int = 0
    replication_out: int = 0
    reassignment_out: int = 0

def traffic_of(partitions: Iterable[PartitionHandle]) -> TrafficCounts:
    """Returns the sums of the counts of these partitions. Any thread may call this function. The function does not hold
    the GIL while it waits for a partition's lock."""

def count_sent(partition: PartitionHandle, size_bytes: int, to_follower: bool, to_added: bool) -> None:
    """Counts the bytes that a response of the handler loop (Python code) sends. `to_follower` says that the response
    goes to a follower. `to_added` says that a reassignment is adding this follower."""

def count_failed(partition: PartitionHandle, error: int) -> None:
    """Counts a Fetch of the handler loop that has failed with this error code."""
