from collections.abc import Iterator

from kafkacore._fast.hot.offset_commit import OffsetCommit

class TopicOffsets:
    """What a group has committed for one topic, by partition. A row is (offset, leader epoch, metadata, commit
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
        """Raises ValueError for a topic id that is none."""

    def take(self, commit: OffsetCommit, number: int) -> None:
        """What was accepted of a topic of the commit. Raises IndexError."""

    def remove(self, partition: int) -> bool:
        """Whether it was there."""
