"""Facts about a cluster as plain data. The watchers, the wire tap and the simulated clients create these observations,
and checkers have no other input.

Nodes are identified by their ids. Times are milliseconds of virtual time, unless a name ends in `_ns`. Offsets are
record offsets. A `life` is the number of a node's incarnation, which lasts from a start of the node to its stop or
death. An `Entry` is one batch of a log, identified by the offset after its last record.
"""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """One batch: the records from `base` up to, but not including, `end`, written in `epoch`. `digest` is a hash of the
    batch's bytes. A batch of an idempotent producer has the producer's id and epoch, and the sequence number of its
    first record."""

    base: int
    end: int
    epoch: int
    digest: int
    producer: int = -1
    producer_epoch: int = -1
    sequence: int = -1


# --- the quorum ---


class Started(NamedTuple):
    """A node restarted, and so lost everything that was only in its memory. The log on its disk ends at `end`."""

    node: int
    life: int
    end: int


class EpochSeen(NamedTuple):
    """A node is in an epoch and regards `leader` as the leader. `leader` is -1 if the node knows no leader."""

    node: int
    epoch: int
    leader: int


class Leads(NamedTuple):
    """A node became the leader."""

    node: int
    epoch: int


class VoteGranted(NamedTuple):
    """A node sent a response that grants a vote. Both ends are (epoch, offset). `candidate_end` is the end of the
    candidate's log according to its request. `voter_end` is the end of the voter's log when the request arrived."""

    node: int
    epoch: int
    candidate: int
    candidate_end: tuple[int, int]
    voter_end: tuple[int, int]


class StateOnDisk(NamedTuple):
    """The epoch, the vote and the leader that would be on a node's disk after a power cut at this moment. `voted` is -1
    if there is no vote, and `leader` is -1 if there is no leader."""

    node: int
    epoch: int
    voted: int
    leader: int = -1


class LogSeen(NamedTuple):
    """All entries of a node's log from offset `start`. `before` is the epoch of the record before `start`, if known."""

    node: int
    start: int
    entries: tuple[Entry, ...]
    before: int | None


class OnDisk(NamedTuple):
    """A node has synced its log up to `end`: the records below `end` would survive a power cut at this moment."""

    node: int
    end: int


class VotersAre(NamedTuple):
    """From now on, elections and commits need a majority of these nodes. The set is empty while the watcher cannot know
    the voters."""

    nodes: frozenset[int]


class HighWatermark(NamedTuple):
    """A node regards the records below `offset` as committed. `epoch` is the epoch in which the node leads, or -1 if it
    does not lead."""

    node: int
    life: int
    offset: int
    epoch: int


class Delivered(NamedTuple):
    """A node passed committed entries to its state machine. `to` is the name of the state machine if a node has
    several."""

    node: int
    life: int
    entries: tuple[Entry, ...]
    to: str = ""


# --- controllers and brokers ---


class ActiveController(NamedTuple):
    """A controller is active in an epoch."""

    node: int
    epoch: int


class ImageSeen(NamedTuple):
    """The metadata of a node after the record at `offset`. `contents` is plain data; `how` says how the image
    was made."""

    node: int
    how: str
    offset: int
    contents: dict[str, object]


class HeartbeatAnswered(NamedTuple):
    """A controller answered a heartbeat of a broker. `accepted` means that the answer has no error. `offset` is the
    metadata offset in the broker's heartbeat. `fenced` is the flag in the answer. `registered` is the broker's epoch in
    this controller's committed metadata when the heartbeat arrived."""

    node: int
    broker: int
    epoch: int
    accepted: bool
    offset: int = 0
    fenced: bool = True
    registered: int = -1


class BrokerAlive(NamedTuple):
    """Whether a broker runs, is not paused, and can reach the controllers. The simulator computes this from its faults,
    not from messages."""

    broker: int
    alive: bool
    at_ms: int


class ControllersAlive(NamedTuple):
    """Whether a majority of the controllers runs and is connected without losses or long delays, and both the voters
    and the active controller are the same as in the last observation. The simulator computes this from its faults and
    from the controllers' state, not from messages."""

    alive: bool
    at_ms: int


class Unfenced(NamedTuple):
    """The brokers that are unfenced in the newest committed metadata."""

    brokers: frozenset[int]
    at_ms: int


class NodeFailed(NamedTuple):
    """A node stopped because of an error, or refused to start. `explained` is true if a simulated fault, such as a full
    disk, is the reason."""

    node: int
    error: str
    explained: bool


class HandlerFailed(NamedTuple):
    """The handler of a request raised an error that it should have handled. The client got UNKNOWN_SERVER_ERROR."""

    request: str
    error: str


# --- replicas of partitions; `log` is the name of the topic and the number of the partition ---


class RoleSeen(NamedTuple):
    """A broker has a role for a partition in a leader epoch."""

    node: int
    life: int
    log: str
    epoch: int
    leads: bool
    at_ns: int = 0


class FetcherSeen(NamedTuple):
    """A broker fetches a partition from `source`, or does not fetch it (-1). `leader` is the leader in the broker's
    role, which may be the broker itself. `is_settled` says that every broker has run for some time without faults."""

    node: int
    log: str
    leader: int
    source: int
    is_settled: bool


class ReplicaLogSeen(NamedTuple):
    """All entries in the files of a replica's log, from offset `start`. The replica returns no records below `first` to
    its readers."""

    node: int
    log: str
    start: int
    entries: tuple[Entry, ...]
    first: int = 0


class ReplicaCommits(NamedTuple):
    """A replica regards the records below `offset` as committed."""

    node: int
    log: str
    offset: int


class InSync(NamedTuple):
    """The ISR of a partition in the newest committed metadata."""

    log: str
    isr: frozenset[int]


class ReplicaSettled(NamedTuple):
    """The state of a replica some time after the faults have ended and the clients have stopped. `first` is its log
    start offset."""

    node: int
    log: str
    first: int
    high_watermark: int
    entries: tuple[Entry, ...]
    leads: bool


class ProduceAnswered(NamedTuple):
    """A broker answered for one partition of a Produce request with acks=all. `led_then` says whether the broker was
    the leader in `epoch` when the request arrived, according to its own metadata. `leads_now` says whether it is the
    leader now. `accepted` means that the answer has no error. A `repeatable` batch has a producer id, so a broker that
    already has the batch accepts it again. `written_in` is the leader epoch of the batch that the broker's log has at
    the offset in the answer. `written_in` is -1 if the log has no batch there, or if an earlier request had the same
    batch."""

    node: int
    log: str
    led_then: bool
    leads_now: bool
    accepted: bool
    epoch: int = -1
    arrived_ns: int = 0
    answered_ns: int = 0
    repeatable: bool = True
    written_in: int = -1


class CommitAnswered(NamedTuple):
    """A broker answered an OffsetCommit of a group. `log` is the partition of __consumer_offsets that holds the group.
    The other fields have the same meanings as in ProduceAnswered. The epoch is -1 if the broker did not lead the
    partition when the request arrived."""

    node: int
    group: str
    log: str
    epoch: int
    leads_now: bool
    accepted: bool
    arrived_ns: int
    answered_ns: int


class PositionsFetched(NamedTuple):
    """A Fetch request of a follower arrived at `node`. `epochs` maps partitions to the leader epochs for which the
    follower asks."""

    node: int
    follower: int
    epochs: tuple[tuple[str, int], ...]


class SyncedBelow(NamedTuple):
    """The high watermark rose on a leader whose log has flush.messages=1. The records below `end` would survive a power
    cut of the leader at this moment."""

    node: int
    log: str
    high_watermark: int
    end: int


class MemberKnown(NamedTuple):
    """A replica that a leader wants in the ISR. `epoch` is the broker epoch in the leader's request, or -1 if the
    leader does not know it. `registered` is the broker epoch in the controller's committed metadata when the request
    arrived, or -1 if that metadata did not contain the broker."""

    broker: int
    epoch: int
    registered: int


class IsrAccepted(NamedTuple):
    """A controller accepted the ISR that a leader proposed for a partition."""

    node: int
    leader: int
    members: tuple[MemberKnown, ...]


class FollowerKnown(NamedTuple):
    """A leader's information about a follower: the end of the follower's log (-1 if unknown), whether the follower is
    in the ISR or was proposed for the ISR, whether it is caught up, and whether its broker can join the ISR."""

    broker: int
    end: int
    in_sync: bool
    may_join: bool


class LeaderSeen(NamedTuple):
    """The state of a leader in one leader epoch and one partition epoch: its high watermark, the min.insync.replicas
    that it knows, and its followers. `in_sync` is the number of members of its committed ISR, including the leader."""

    node: int
    life: int
    log: str
    epoch: int
    partition_epoch: int
    high_watermark: int
    min_isr: int
    in_sync: int
    followers: tuple[FollowerKnown, ...]


# --- clients ---


class MetadataAcknowledged(NamedTuple):
    """A client got a response that confirms its change. The resource now has this value, or does not exist if the value
    is None. One client makes all changes of a resource, one after the other, and `order` is the number of this change
    among them. The response took `took_ms`."""

    resource: str
    value: object
    order: int
    took_ms: int = 0


class MetadataMaybe(NamedTuple):
    """A client requested a change of a resource, and got an error or no response. The change may still take effect
    later."""

    resource: str
    value: object
    order: int


class MetadataSurvived(NamedTuple):
    """The value of a resource at the end of a run, after all nodes have recovered."""

    resource: str
    value: object


class MayLoseRecords(NamedTuple):
    """From now on, the topic allows unclean elections, so its records may be lost."""

    topic: str


class RecordsDeleted(NamedTuple):
    """A client is about to delete the records below an offset. The deletion may succeed, fail, or have an unknown
    outcome."""

    log: str
    before: int


class RecordsSent(NamedTuple):
    """A client is about to send records for the first time."""

    log: str
    values: tuple[bytes, ...]


class ValuesRead(NamedTuple):
    """A client read these values from a topic whose records may be lost."""

    log: str
    values: tuple[bytes, ...]


class RecordAcknowledged(NamedTuple):
    """A client got an acknowledgement that a record is stored at an offset. `log` is the name of the topic and the
    number of the partition. The client first sent the record at `sent_ns`, and got the acknowledgement at
    `heard_ns`."""

    log: str
    offset: int
    value: bytes
    sent_ns: int = 0
    heard_ns: int = 0


class RecordRead(NamedTuple):
    """A client read a record below the high watermark."""

    log: str
    offset: int
    value: bytes


class LogRead(NamedTuple):
    """A client requested records from offset `at`. The response contained the records at `offsets`, and the high
    watermark. `is_whole` is false if the client could not read a batch of the response."""

    log: str
    at: int
    offsets: tuple[int, ...]
    high_watermark: int
    is_whole: bool = True


class LatestListed(NamedTuple):
    """The leader of an epoch answered ListOffsets(latest) with this end of a log. The client sent the request at
    `sent_ns`."""

    log: str
    epoch: int
    offset: int
    sent_ns: int


class ProducerRefused(NamedTuple):
    """An idempotent producer got a fatal error from `node`: the producer cannot continue."""

    log: str
    error: str
    node: int


class LogSurvived(NamedTuple):
    """All records in the log of a partition at the end of a run."""

    log: str
    records: dict[int, bytes]


class CommitAcknowledged(NamedTuple):
    """A broker acknowledged a commit of a group. Only one member of the group commits, and its offsets only rise."""

    group: str
    log: str
    offset: int


class CommitFetched(NamedTuple):
    """A client fetched the committed offset of a group from `node`; -1 means that the group has no commit. `floor` is
    the highest offset whose commit was acknowledged before the request was sent. `ceiling` is the highest offset for
    which a commit was ever sent."""

    group: str
    log: str
    offset: int
    floor: int
    ceiling: int


# --- progress ---


class Healed(NamedTuple):
    """From now on there are no faults. Every node runs and is connected."""

    at_ms: int


class Progressed(NamedTuple):
    """An event that the run expects after the faults has happened. `what` is the name of the event."""

    what: str
    at_ms: int


class TimePassed(NamedTuple):
    at_ms: int
