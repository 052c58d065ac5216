"""Decides the ISR of each partition that this broker leads. Followers that have caught up join the ISR, and followers
that have fallen behind leave it.

This module follows the rules of Kafka's Partition and AlterPartitionManager. It is a state machine without a clock or
socket. Native code reports the partitions to check. `request` returns the next AlterPartition, and the caller reports
its result with `answered` or `lost`. At most one request is in flight, so each partition has at most one proposal. A
proposal contains the leader epoch and the partition epoch in which it was made. The controller refuses a proposal if
either epoch has changed (KIP-497).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from kafkacore.metadata.image import EMPTY_IMAGE, MetadataImage
from kafkacore.metadata.partitions import RECOVERED, RECOVERING, Ids, Partition
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import AlterPartitionRequest as Request
from kafkacore.protocol.response_errors import error_of_peer
from kafkacore.protocol.uuid import Uuid

LOG: Final = logging.getLogger("kafkacore.replication")
MAX_PER_REQUEST: Final = 10_000  # a request has at most this many partitions

# The controller did not apply the change, although the partition epoch was right. So this broker can make another
# proposal.
_NOT_APPLIED: Final = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
# The controller knows a newer state of the partition, which will arrive with the metadata.
_METADATA_IS_NEWER: Final = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.INVALID_REQUEST, ErrorCode.NEW_LEADER_ELECTED,
})  # fmt: skip

Key = tuple[Uuid, int]  # topic id and partition


class Follower(Protocol):
    """A replica on another broker, as the leader knows it. FollowerState implements this interface."""

    @property
    def broker_id(self) -> int: ...
    @property
    def broker_epoch(self) -> int:
        """The broker epoch in the replica's last Fetch (KIP-903), or -1 if that Fetch contained none."""

    @property
    def may_join(self) -> bool:
        """Whether the replica can join the ISR: it is outside the ISR and caught up, and its broker is neither fenced
        nor shutting down."""

    @property
    def must_leave(self) -> bool:
        """Whether the replica is in the ISR but fell behind: it was last caught up more than replica.lag.time.max.ms
        before the last periodic check, and has not caught up since."""


class Led(Protocol):
    """A partition on this broker. Its leader can be this broker or another one. PartitionHandle implements this
    interface."""

    @property
    def topic(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def role(self) -> str: ...
    @property
    def state(self) -> str:
        """The state of the log; "failed" if its directory has failed."""

    @property
    def leader_epoch(self) -> int: ...
    @property
    def partition_epoch(self) -> int: ...
    def followers(self) -> Sequence[Follower]: ...
    def propose_isr(self, isr: Iterable[int], partition_epoch: int) -> bool: ...
    def withdraw_isr(self) -> None: ...
    def commit_isr(
        self, isr: Iterable[int], leader_epoch: int, partition_epoch: int, recovering: bool = ...
    ) -> bool: ...


class Member(NamedTuple):
    broker_id: int
    broker_epoch: int


@dataclass(eq=False, slots=True)
class Proposal:
    """An ISR change that this broker requests from the controller. After some error codes, the proposal is not sent
    again and only waits for newer metadata.
    """

    key: Key
    led: Led
    was: Partition
    isr: list[Member]

    @property
    def ids(self) -> Ids:
        return tuple([each.broker_id for each in self.isr])


@dataclass(slots=True)
class Counts:
    """The values of Kafka's metrics IsrShrinksPerSec, IsrExpandsPerSec and FailedIsrUpdatesPerSec."""

    shrinks: int = 0
    expands: int = 0
    failed: int = 0


@dataclass(eq=False)
class IsrManager:
    """Decides the ISRs. Belongs to one event loop. `led` finds a partition of this broker. `broker_epoch` returns this
    broker's epoch. `in_image` maps a partition's native key to its key in the image. The two keys differ only if the
    topic had no id at first. `image` is the metadata image that the replica manager applied last.
    """

    node_id: int
    led: Callable[[Key], Led | None]
    broker_epoch: Callable[[], int]
    in_image: Callable[[Key], Key]
    image: MetadataImage = EMPTY_IMAGE
    counts: Counts = field(default_factory=Counts)
    _proposals: dict[Key, Proposal] = field(default_factory=dict)
    _unsent: dict[Key, Proposal] = field(default_factory=dict)
    _sent: list[Proposal] = field(default_factory=list)
    # Partition states that the controller has committed and returned in its responses, but that the image does not have
    # yet.
    _ahead: dict[Key, Partition] = field(default_factory=dict)
    _later: dict[Key, None] = field(default_factory=dict)  # partitions to check again when their proposals have ended

    # --- checking partitions ---

    def look(self, keys: Iterable[Key]) -> None:
        """Checks partitions whose followers have changed or whose leadership has started. If a partition has a
        proposal, it is checked when that proposal has ended.
        """
        for key in map(self.in_image, keys):
            if key not in self._proposals:
                self._propose(key)

    def _propose(self, key: Key) -> None:
        led, was = self.led(key), self._committed(key)
        if led is None or was is None or led.role != "leader":
            return
        if led.state == "failed":
            # No follower can fetch from a failed log, so all of them seem to lag. Without them in the ISR, nobody could
            # take over the partition.
            return
        if (was.leader, was.leader_epoch, was.partition_epoch) != (self.node_id, led.leader_epoch, led.partition_epoch):
            return  # newer metadata will bring the partition's new role
        isr = self._wanted(led, was)
        if isr is None or not led.propose_isr([each.broker_id for each in isr], was.partition_epoch):
            return
        made = self._proposals[key] = self._unsent[key] = Proposal(key, led, was, isr)
        LOG.debug(
            "%s-%d: proposes the ISR %s instead of %s, in leader epoch %d and partition epoch %d",
            led.topic, led.index, made.ids, was.isr, was.leader_epoch, was.partition_epoch,
        )  # fmt: skip

    def _wanted(self, led: Led, was: Partition) -> list[Member] | None:
        """Returns the ISR that the partition should have, or None if the partition already has that ISR."""
        mine = Member(self.node_id, self.broker_epoch())
        if was.recovery_state == RECOVERING:
            # After an unclean election the leader is the only member until it has recovered (KIP-704).
            return [mine]
        members, changed = [mine], False
        for follower in led.followers():
            in_isr = follower.broker_id in was.isr
            is_wanted = not follower.must_leave if in_isr else follower.may_join
            changed = changed or in_isr is not is_wanted
            if is_wanted:
                members.append(Member(follower.broker_id, follower.broker_epoch))
        return members if changed else None

    def _committed(self, key: Key) -> Partition | None:
        topic = self.image.topic_by_id(key[0])
        row = None if topic is None else self.image.partition(topic, key[1])
        ahead = self._ahead.get(key)
        return ahead if row is not None and ahead is not None and _newer(ahead, row) else row

    # --- metadata ---

    def applied(self, image: MetadataImage) -> None:
        """Handles a newer metadata image that the replica manager has applied. If a partition has changed in that
        image, ends the partition's proposal, because the committed state takes precedence.
        """
        self.image = image
        self._take_ids()
        for key in [key for key, ahead in self._ahead.items() if self._committed(key) is not ahead]:
            del self._ahead[key]
        for proposal in [each for each in self._proposals.values() if self._is_over(each)]:
            self._note_if_granted(proposal)
            self._end(proposal.key)
        self._look_later()

    def _take_ids(self) -> None:
        """If a topic has just got an id, moves the state of its partitions to keys with the id. A pending proposal must
        not end, because the controller may apply it."""
        held: tuple[dict[Key, Any], ...] = (self._proposals, self._unsent, self._ahead, self._later)
        for each in held:
            for key, now in [(key, now) for key in each if (now := self.in_image(key)) != key]:
                each[now] = each.pop(key)
        for key, proposal in self._proposals.items():
            proposal.key = key

    def _is_over(self, proposal: Proposal) -> bool:
        now = self._committed(proposal.key)
        return now is None or now.partition_epoch != proposal.was.partition_epoch

    def _note_if_granted(self, proposal: Proposal) -> None:
        """Notes a change that the metadata shows before the controller's response arrives."""
        was, now = proposal.was, self._committed(proposal.key)
        if now is None or proposal.key in self._unsent or now.leader_epoch != was.leader_epoch:
            return
        if set(now.isr) == set(proposal.ids):
            self._note(proposal.led, was, now)

    def _note(self, led: Led, was: Partition, now: Partition) -> None:
        self.counts.shrinks += bool(set(was.isr) - set(now.isr))
        self.counts.expands += bool(set(now.isr) - set(was.isr))
        LOG.info("%s-%d: the ISR is %s, in partition epoch %d", led.topic, led.index, now.isr, now.partition_epoch)

    def _end(self, key: Key) -> None:
        del self._proposals[key]
        self._unsent.pop(key, None)
        self._later[key] = None

    def _look_later(self) -> None:
        ready = [key for key in self._later if key not in self._proposals]
        for key in ready:
            del self._later[key]
            self._propose(key)

    # --- the controller ---

    @property
    def has_more(self) -> bool:
        """Whether `request` would return a request."""
        return bool(self._unsent) and not self._sent

    def request(self) -> Request | None:
        """Returns the next request, or None while a request is in flight or if there is nothing to request."""
        if not self.has_more:
            return None
        while self._unsent and len(self._sent) < MAX_PER_REQUEST:
            key = next(iter(self._unsent))
            self._sent.append(self._unsent.pop(key))
        topics: dict[Uuid, list[Any]] = {}
        for proposal in self._sent:
            topics.setdefault(proposal.key[0], []).append(_asked(proposal))
        return Request(
            broker_id=self.node_id,
            broker_epoch=self.broker_epoch(),
            topics=[Request.TopicData(topic_id=topic_id, partitions=asked) for topic_id, asked in topics.items()],
        )

    def lost(self) -> None:
        """Notes that the request got no response or was refused as a whole. The proposals in the request are sent
        again, unless newer metadata has ended them.
        """
        sent, self._sent = self._sent, []
        for proposal in sent:
            self._send_again(proposal)

    def answered(self, answer: Any) -> bool:
        """Handles an AlterPartitionResponse. Returns False if the next request must wait a moment, because an immediate
        request would get the same response.
        """
        refused = error_of_peer(answer.error_code)
        if refused != ErrorCode.NONE:
            LOG.warning("the controller refused %d changes of ISRs: %s; they are sent again", len(self._sent), refused)
            self.lost()
            return False
        calm = True
        results = {
            self.in_image((Uuid(topic.topic_id), each.partition_index)): each
            for topic in answer.topics
            for each in topic.partitions
        }
        sent, self._sent = self._sent, []
        for proposal in sent:
            result = results.get(proposal.key)
            if self._proposals.get(proposal.key) is not proposal:
                continue  # newer metadata has ended this proposal
            if result is None:
                calm = False
                self._send_again(proposal)
            elif result.error_code:
                calm = self._refused(proposal, error_of_peer(result.error_code)) and calm
            else:
                self._accepted(proposal, result)
        self._look_later()
        return calm

    def _send_again(self, proposal: Proposal) -> None:
        if self._proposals.get(proposal.key) is proposal:
            self._unsent[proposal.key] = proposal

    def _accepted(self, proposal: Proposal, result: Any) -> None:
        led, was = proposal.led, proposal.was
        now = was._replace(
            leader=result.leader_id,
            leader_epoch=result.leader_epoch,
            partition_epoch=result.partition_epoch,
            isr=tuple(result.isr),
            recovery_state=result.leader_recovery_state,
        )
        if now.leader_epoch != led.leader_epoch or now.partition_epoch < led.partition_epoch:
            # This broker leads the partition in a newer epoch, or no longer leads it. Newer metadata will show which.
            self.counts.failed += 1
            return
        self._ahead[proposal.key] = now
        self._end(proposal.key)
        led.commit_isr(now.isr, now.leader_epoch, now.partition_epoch, now.recovery_state == RECOVERING)
        self._note(led, was, now)

    def _refused(self, proposal: Proposal, error: ErrorCode) -> bool:
        """Handles an error code for one partition. Returns True if the next request can be sent without a pause."""
        led = proposal.led
        self.counts.failed += 1
        if error in _METADATA_IS_NEWER:
            LOG.debug("%s-%d: the ISR %s is refused: %s", led.topic, led.index, proposal.ids, error.name)
            return True
        LOG.info("%s-%d: the controller refused the ISR %s: %s", led.topic, led.index, proposal.ids, error.name)
        if error in _NOT_APPLIED:
            self._end(proposal.key)
            led.withdraw_isr()
        else:
            self._send_again(proposal)
        return False


def _asked(proposal: Proposal) -> Any:
    was = proposal.was
    return Request.PartitionData(
        partition_index=was.partition,
        leader_epoch=was.leader_epoch,
        new_isr_with_epochs=[Request.BrokerState(**each._asdict()) for each in proposal.isr],
        leader_recovery_state=RECOVERED,
        partition_epoch=was.partition_epoch,
    )


def _newer(one: Partition, other: Partition) -> bool:
    return one.partition_epoch > other.partition_epoch
