from collections.abc import Iterator

from kafkacore._fast.hot.offset_commit import OffsetCommit

class TopicOffsets:
    """The committed offsets of a group for one topic, by partition. A row is a tuple: offset, leader epoch, metadata,
    commit timestamp, expire timestamp (-1 for none), topic id (zeros for none).

    Commits and deletions may arrive in another order than in the log. `at` is the position of a commit or deletion in
    the log. A commit or deletion has no effect if the row already has a commit at a later position."""

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
        at: int,
    ) -> None:
        """Stores a committed offset. Raises ValueError if the topic id does not have 16 bytes."""

    def take(self, commit: OffsetCommit, number: int, at: int) -> None:
        """Stores the accepted partitions of a commit. `number` is the index of the topic in the commit. Raises
        IndexError."""

    def remove(self, partition: int, at: int) -> bool:
        """Removes the offset of a partition. Returns whether there was an offset to remove."""
