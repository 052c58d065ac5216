"""A classic group and its members: their state, and the methods that read it. Other modules change the state.

Sources: KIP-345 (static members), KIP-394 (members that got an id but have not joined with it yet) and Kafka's
ClassicGroup.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from kafkacore.coordinator.group.deadlines import Deadline
from kafkacore.coordinator.group.outbox import Parked
from kafkacore.coordinator.group.published_groups import PublishedGroup, PublishedGroups
from kafkacore.protocol.errors import ErrorCode, ProtocolError, error_for
from kafkacore.protocol.messages import ConsumerProtocolSubscription

EMPTY: Final = "Empty"
PREPARING_REBALANCE: Final = "PreparingRebalance"
COMPLETING_REBALANCE: Final = "CompletingRebalance"
STABLE: Final = "Stable"
DEAD: Final = "Dead"

CONSUMER_PROTOCOL: Final = "consumer"
UNKNOWN_MEMBER_ID: Final = ""
NO_TIMESTAMP: Final = -1
# The limit of members that got an id but have not joined with it. group.max.size does not count these members, and the
# group keeps each of them for the length of a session.
MAX_PENDING_MEMBERS: Final = 10_000

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]  # names and metadata, in the member's order of preference


class Member:
    """A member of a group. `awaiting_join` and `awaiting_sync` are its parked requests, which wait for other members.
    `is_new` is True until its first rebalance has ended: until then, the member does not know its id and cannot send
    heartbeats. `heard_by` is the last published group (`published_groups`) that listed the member, and the member's
    place in that list."""

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "heard_by",
        "instance_id",
        "is_new",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: Protocols,
        session: Deadline,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.session = session
        self.assignment = assignment
        self.awaiting_join: Parked | None = None
        self.awaiting_sync: Parked | None = None
        self.is_new = False
        self.heard_by: tuple[PublishedGroup, int] | None = None

    @property
    def excused(self) -> bool:
        """Returns whether the member is allowed to be silent now, because its request waits for the other members. A
        new member is not allowed to be silent, because its client may no longer exist."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise ValueError(f"member {self.member_id} does not support protocol {protocol_name}")


class ClassicGroup:
    """A classic group. `recorded` says that the state in `__consumer_offsets` is committed. Before that, clients do not
    see the group. `deleting` says that the group's tombstones are being written. During that time the group accepts no
    requests."""

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.previous_state = DEAD
        self.state_timestamp = now_ms
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_id = 0
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.pending_members: dict[str, Deadline] = {}
        self.pending_sync: set[str] = set()
        self.new_member_added = False
        self.join_timer = Deadline()
        self.sync_timer = Deadline()
        self.recorded = False
        self.deleting = False
        self._published: PublishedGroup | None = None  # None while the shard itself answers for this group
        self._static_members: dict[str, str] = {}  # maps each instance id to a member id
        self._support: dict[str, int] = {}  # maps each protocol to the number of members that support it
        self._awaiting_join = 0
        self._subscriptions: list[bytes] | None = None  # the members' subscriptions in this generation, not parsed yet
        self._subscribed_topics: frozenset[str] | None = None

    # --- methods that read the state ---

    @property
    def is_simple(self) -> bool:
        """Whether the group only stores offsets, for consumers that assign partitions themselves."""
        return self.protocol_type is None and self.state == EMPTY and not self.pending_members

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL

    @property
    def can_rebalance(self) -> bool:
        return self.state in (STABLE, COMPLETING_REBALANCE, EMPTY)

    @property
    def awaiting_join(self) -> int:
        """The number of members whose JoinGroup is parked."""
        return self._awaiting_join

    @property
    def has_all_joined(self) -> bool:
        return len(self.members) == self._awaiting_join and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def static_member_id(self, instance_id: str) -> str | None:
        return self._static_members.get(instance_id)

    def validate_member(self, member_id: str, instance_id: str | None) -> Member:
        """Returns the member with this id. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        if instance_id is not None:
            existing = self._static_members.get(instance_id)
            if existing is None:
                raise error_for(ErrorCode.UNKNOWN_MEMBER_ID)
            if existing != member_id:
                raise error_for(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise error_for(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Returns whether a member with these protocols can join. One of the protocols must be a protocol that all
        other members support."""
        if self.state == EMPTY:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        count = len(self.members)
        for name, _ in protocols:  # noqa: SIM110 - a generator costs more than the loop
            if self._support.get(name, 0) == count:
                return True
        return False

    def select_protocol(self) -> str:
        """Returns the protocol that most members prefer, among the protocols that all members support. In a tie, the
        protocol that comes first in the members' order wins."""
        votes: dict[str, int] = {}
        count = len(self.members)
        common = {name for name, supporters in self._support.items() if supporters == count}
        for member in self.members.values():
            for name, _ in member.protocols:
                if name in common:
                    votes[name] = votes.get(name, 0) + 1
                    break
            else:
                raise ValueError(f"member {member.member_id} supports no protocol that all others support")
        return max(votes, key=votes.__getitem__)

    # --- subscriptions of consumer groups ---

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics to which the members of this generation are subscribed. None if the topics are unknown: the group
        is not a consumer group, has not agreed on a protocol, or has a member whose subscription cannot be parsed."""
        if self._subscriptions is not None:
            unread, self._subscriptions = self._subscriptions, None
            self._subscribed_topics = _subscribed_topics(unread)
        return self._subscribed_topics

    def is_subscribed(self, topic: str) -> bool:
        """Returns whether the group consumes the topic. A consumer group whose topics are unknown counts as subscribed
        to every topic."""
        topics = self.subscribed_topics
        return self.uses_consumer_protocol if topics is None else topic in topics

    def note_subscriptions(self) -> None:
        """Stores the members' current subscriptions. They are parsed on demand."""
        self._subscriptions = self._subscribed_topics = None
        if self.uses_consumer_protocol:
            if not self.members:
                self._subscribed_topics = frozenset()
            elif self.protocol_name is not None:
                self._subscriptions = [member.metadata(self.protocol_name) for member in self.members.values()]

    # --- methods that change the state ---

    def transition_to(self, state: str, now_ms: int) -> None:
        self.withdraw()
        self.previous_state, self.state, self.state_timestamp = self.state, state, now_ms

    def add(self, member: Member, parked: Parked | None) -> None:
        self.withdraw()
        if member.instance_id is not None:
            self._static_members[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_support(member, 1)
        self.park_join(member, parked)
        self.pending_members.pop(member.member_id, None)

    def remove(self, member_id: str) -> Member | None:
        """Removes a member, including one that got an id but has not joined with it. The caller cancels its
        deadline."""
        self.withdraw()
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_support(member, -1)
            self.park_join(member, None)
            if member.instance_id is not None:
                self._static_members.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_members.pop(member_id, None)
        self.pending_sync.discard(member_id)
        return member

    def replace_static(self, instance_id: str, old_id: str, new: Member) -> None:
        """Replaces the old member with `new`, which has the same instance id. The caller first answers the parked
        requests of the old member."""
        self.withdraw()
        old = self.members.pop(old_id)
        self._count_support(old, -1)
        self.members[new.member_id] = new
        self._count_support(new, 1)
        if self.leader_id == old_id:
            self.leader_id = new.member_id
        self._static_members[instance_id] = new.member_id

    def update(self, member: Member, protocols: Protocols, rebalance_ms: int, session_ms: int) -> None:
        if member.protocols != protocols:
            self._count_support(member, -1)
            member.protocols = protocols
            self._count_support(member, 1)
        member.rebalance_timeout_ms = rebalance_ms
        member.session_timeout_ms = session_ms

    @property
    def may_be_published(self) -> bool:
        return self._published is None and self.state == STABLE

    def publish(self, published_groups: PublishedGroups) -> None:
        """Publishes a group that may be published. From then on, processors answer the heartbeats and SyncGroups of its
        members, until the group changes."""
        members = self.members.values()
        self._published = published_groups.publish(
            self.group_id,
            self.generation_id,
            [(each.member_id, each.instance_id, each.assignment) for each in members],
            self.protocol_type,
            self.protocol_name,
        )
        for place, member in enumerate(members):
            member.heard_by = self._published, place

    def withdraw(self) -> None:
        published, self._published = self._published, None
        if published is not None:
            published.withdraw()
            self._note_synced(published)

    def late_members(self) -> list[str]:
        """Returns the members that have not fetched their assignment in this generation, ordered by id. After this
        call, processors no longer return assignments of this generation."""
        if self._published is not None:
            self._note_synced(self._published)
        if self.pending_sync:
            self.withdraw()
        return sorted(self.pending_sync)

    def _note_synced(self, published: PublishedGroup) -> None:
        """Removes from `pending_sync` the members that got their assignment from a processor."""
        for member_id in tuple(self.pending_sync):
            member = self.members.get(member_id)  # a static member that was replaced leaves its old id here
            heard_by = None if member is None else member.heard_by
            if heard_by is not None and heard_by[0] is published and published.is_synced(heard_by[1]):
                self.pending_sync.discard(member_id)

    def park_join(self, member: Member, parked: Parked | None) -> Parked | None:
        """Parks a request for the member, and returns the request that was parked before."""
        was, member.awaiting_join = member.awaiting_join, parked
        self._awaiting_join += (parked is not None) - (was is not None)
        return was

    def elect_joined_leader(self) -> bool:
        """Keeps the leader if it has joined. Otherwise elects a member that has joined. Returns False if no member has
        joined."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    def next_generation(self, now_ms: int) -> None:
        self.generation_id = (self.generation_id + 1) & 0x7FFFFFFF
        self.protocol_name = self.select_protocol() if self.members else None
        self.note_subscriptions()
        self.transition_to(COMPLETING_REBALANCE if self.members else EMPTY, now_ms)
        self.pending_sync.clear()

    def _count_support(self, member: Member, change: int) -> None:
        for name, _ in member.protocols:
            count = self._support.get(name, 0) + change
            if count:
                self._support[name] = count
            else:
                self._support.pop(name, None)


def _subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Returns the topics of these subscriptions, or None if a client sent something else. Every version of a consumer's
    subscription begins with the fields of version 0."""
    topics: set[str] = set()
    for metadata in subscriptions:
        if len(metadata) < 2 or metadata[0] & 0x80:
            return None
        try:
            subscription, _ = ConsumerProtocolSubscription.decode_prefix(metadata[2:], 0)
        except ProtocolError:
            return None
        topics.update(subscription.topics)
    return frozenset(topics)
