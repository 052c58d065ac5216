from collections.abc import Iterator

from kafkacore._fast.hot.offset_commit import OffsetCommit

class TopicOffsets:
    """The committed offsets of a group for one topic, by partition. A row is (offset, leader epoch, metadata, commit
    timestamp, expire timestamp, topic id): -1 for no expire timestamp, zeros for no topic id."""

    def __len__(self) -> int: ...
    def __contains__(self, partition: int) -> bool: ...
    def __iter__(self) -> Iterator[int]: ...
    def get(self, partition: int) -> tuple[int, int, str, int, int, bytes] | None: ...
    def items(self) -> list[tuple[int, tuple[int, int, str, int, int, bytes]]]: ...
    def put(
        self,
        partition: int,
        offset: int,
        leader_epoch: int,
        metadata: str,
        commit_timestamp: int,
        expire_timestamp: int,
        topic_id: bytes,
    ) -> None:
        """Raises ValueError when the topic id is not 16 bytes."""

    def take(self, commit: OffsetCommit, number: int) -> None:
        """Takes over the accepted partitions of a topic of the commit. Raises IndexError."""

    def remove(self, partition: int) -> bool:
        """Whether it was there."""
