"""The partition table, in which hot requests look up partitions."""

from collections.abc import Collection, Iterable, Sequence

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log.partition_handle import PartitionHandle

class Table:
    """An immutable table of topics. `Table()` is empty; `changed` makes the next table."""

    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def changed(
        self, topics: Collection[tuple[str, Uuid, Sequence[PartitionHandle | None]]], gone: Iterable[Uuid] = ()
    ) -> Table:
        """A new table: this one's topics without the ids in `gone`, and with `topics` (`(name, topic id, partitions by
        index)`), each in place of the topic that had its id or name. Topics that stay cost nothing."""

    def topics(self) -> list[tuple[str, Uuid, int]]:
        """Name, topic id and number of partitions of each topic, in no particular order."""

    def longest_probe(self) -> int:
        """The most places that a look-up passes on its way to a topic; tests bound it."""

    def find(self, topic: str | Uuid, index: int) -> bool:
        """Whether the table has the partition of a topic name or a topic id."""

def live_count() -> int:
    """Number of live tables in this process."""

def live_topics() -> int:
    """Number of live topics in this process; tables share them."""
