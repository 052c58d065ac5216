"""State that the parts of a shard share: its groups, its offsets, the time of the current input (such as a
request or a tick), and the effects of the input."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kafkacore._fast.record.batch import DEFAULT_LIMIT_BYTES
from kafkacore.coordinator.group.classic import ClassicGroup
from kafkacore.coordinator.group.deadlines import Deadline, Deadlines
from kafkacore.coordinator.group.offsets import Offsets
from kafkacore.coordinator.group.other_kinds import OtherGroup
from kafkacore.coordinator.group.outbox import Outbox
from kafkacore.coordinator.group.published_groups import PublishedGroups
from kafkacore.coordinator.group.settings import GroupSettings

Group: TypeAlias = ClassicGroup | OtherGroup


class Counts:
    """Counts events in the shards of one broker since the broker's start, as Apache Kafka's metrics do."""

    __slots__ = ("completed_rebalances", "deleted_offsets", "expired_offsets", "offset_commits")

    def __init__(self) -> None:
        self.offset_commits = 0  # counts partitions, not requests
        self.deleted_offsets = 0  # offsets that OffsetDelete has deleted
        self.expired_offsets = 0
        self.completed_rebalances = 0


class Core:
    """The shared state of a shard. `now_ms` is the time of the input that is being processed. `max_batch_bytes` returns
    the limit of a batch in the partition's log."""

    def __init__(
        self,
        settings: GroupSettings,
        new_uuid: Callable[[], bytes],
        published_groups: PublishedGroups | None = None,
        counts: Counts | None = None,
        max_batch_bytes: Callable[[], int] = lambda: DEFAULT_LIMIT_BYTES,
    ) -> None:
        self.counts = counts or Counts()
        self.max_batch_bytes = max_batch_bytes
        self.settings = settings
        self.published_groups = published_groups
        self._new_uuid = new_uuid
        self.now_ms = 0
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self.deadlines = Deadlines()
        self.outbox = Outbox()

    def new_member_id(self, prefix: str) -> str:
        """Returns a new member id. It ends with a UUID in Java's form."""
        text = self._new_uuid().hex()
        return f"{prefix}-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def classic(self, group_id: str) -> ClassicGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def is_here(self, group: ClassicGroup) -> bool:
        """Returns whether this object is still registered under its group id."""
        return self.groups.get(group.group_id) is group

    def drop(self, group: ClassicGroup) -> None:
        """Removes a group. Call this after all waiting requests of the group have been answered."""
        self.cancel_deadlines(group)
        group.withdraw()
        if self.is_here(group):
            del self.groups[group.group_id]

    def cancel_deadlines(self, group: ClassicGroup) -> None:
        for deadline in (
            group.join_timer,
            group.sync_timer,
            *group.pending_members.values(),
            *(member.session for member in group.members.values()),
        ):
            self.deadlines.cancel(deadline)

    def set_deadline(self, deadline: Deadline, after_ms: int) -> None:
        self.deadlines.set(deadline, self.now_ms + after_ms)

    def await_client(self, deadline: Deadline, after_ms: int) -> None:
        """Sets a deadline for a client that may be silent until then. Only the time in which this coordinator can
        receive requests counts."""
        self.deadlines.set(deadline, self.now_ms + after_ms, after_ms)
