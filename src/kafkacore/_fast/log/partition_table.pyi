"""The partition table that hot requests look partitions up in."""

from collections.abc import Collection, Iterable, Sequence

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log.partition_handle import PartitionHandle

class Table:
    """An immutable table of topics; empty when made by itself. `changed` makes the next one."""

    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def changed(
        self, topics: Collection[tuple[str, Uuid, Sequence[PartitionHandle | None]]], gone: Iterable[Uuid] = ()
    ) -> Table:
        """A new table: this one's topics, with `topics` (`(name, topic id, partitions by index)`) put in place of what
        had their id or name, and without the topic ids in `gone`. A topic that stays costs nothing by itself."""

    def topics(self) -> list[tuple[str, Uuid, int]]:
        """Name, topic id and how many partitions, in no order."""

    def longest_probe(self) -> int:
        """How many places a look-up passes at most on its way to a topic; tests bound it."""

    def find(self, topic: str | Uuid, index: int) -> bool:
        """Whether the partition of a topic name or a topic id is here."""

def live_count() -> int:
    """Tables that somebody holds in this process."""

def live_topics() -> int:
    """Topics of all these tables."""
