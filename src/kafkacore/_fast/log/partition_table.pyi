"""The partition table, in which native code looks up the partitions of requests."""

from collections.abc import Collection, Iterable, Sequence

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log.partition_handle import PartitionHandle

class Table:
    """An immutable table of topics. `Table()` is empty; `changed` creates the next table."""

    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def changed(
        self, topics: Collection[tuple[str, Uuid, Sequence[PartitionHandle | None]]], gone: Iterable[Uuid] = ()
    ) -> Table:
        """Returns a new table. It has the topics of this table, except the topics whose ids are in `gone`, and it has
        `topics`. Each item of `topics` is `(name, topic id, partitions by index)`, and replaces the topic with the same
        id or name. Both tables share the topics that do not change."""

    def topics(self) -> list[tuple[str, Uuid, int]]:
        """Returns name, topic id and number of partitions of each topic, in no particular order."""

    def longest_probe(self) -> int:
        """Returns the highest number of places that a look-up of a topic visits. Tests check its limit."""

    def find(self, topic: str | Uuid, index: int) -> bool:
        """Returns whether the table has the partition. `topic` is a topic name or a topic id."""

def live_count() -> int:
    """Returns the number of tables in this process that have not been freed."""

def live_topics() -> int:
    """Returns the number of topics in this process that have not been freed. Tables share topics."""
