"""Facts about a cluster as plain data. The watcher of a cluster makes them; checkers take nothing else.

A node is named by its id, a time is in milliseconds of the world's own clock, an offset is that of a record. A `life`
is one run of a node from its start to its end. An `Entry` is one batch of a log, named by the offset after its last
record.
"""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """One batch: the records from `base` to below `end`, written in `epoch`. `digest` stands for its bytes."""

    base: int
    end: int
    epoch: int
    digest: int


# --- the quorum ---


class Started(NamedTuple):
    """A node began a new life: everything that it had only in memory is gone. Its disk has its log below `end`."""

    node: int
    life: int
    end: int


class EpochSeen(NamedTuple):
    """A node is in an epoch, and knows `leader` as the leader; -1 when it knows none."""

    node: int
    epoch: int
    leader: int


class Leads(NamedTuple):
    """A node took the role of the leader."""

    node: int
    epoch: int


class VoteGranted(NamedTuple):
    """An answer that grants a vote left a node. The ends are (epoch, offset): the end of the log that the candidate
    named, and the end of the voter's log when the request arrived."""

    node: int
    epoch: int
    candidate: int
    candidate_end: tuple[int, int]
    voter_end: tuple[int, int]


class StateOnDisk(NamedTuple):
    """The epoch, the vote and the leader that would be on a node's disk after a power cut at this moment; -1 for
    nobody."""

    node: int
    epoch: int
    voted: int
    leader: int = -1


class LogSeen(NamedTuple):
    """All entries of a node's log from `start` on. `before` is the epoch of the record below `start`, if known."""

    node: int
    start: int
    entries: tuple[Entry, ...]
    before: int | None


class OnDisk(NamedTuple):
    """After a power cut at this moment a node's disk would have the records below `end`."""

    node: int
    end: int


class VotersAre(NamedTuple):
    """The nodes whose majority decides from now on; empty while a watcher cannot know them."""

    nodes: frozenset[int]


class HighWatermark(NamedTuple):
    """A node regards the records below `offset` as committed. `epoch` is the epoch that it leads; -1 when it does not
    lead."""

    node: int
    life: int
    offset: int
    epoch: int


class Delivered(NamedTuple):
    """A node gave committed entries to its state machine. `to` names the state machine when a node has several."""

    node: int
    life: int
    entries: tuple[Entry, ...]
    to: str = ""


# --- controllers and brokers ---


class ActiveController(NamedTuple):
    """A controller decides in an epoch."""

    node: int
    epoch: int


class ImageSeen(NamedTuple):
    """The metadata of a node after the record at `offset`. `contents` is plain data; `how` says who made the image."""

    node: int
    how: str
    offset: int
    contents: dict[str, object]


class HeartbeatAnswered(NamedTuple):
    """A controller answered the heartbeat of a broker's registration. `accepted` means without an error. `offset` is
    the one up to which the broker said that it has read the metadata; `fenced` is the controller's answer."""

    node: int
    broker: int
    epoch: int
    accepted: bool
    offset: int = 0
    fenced: bool = True


class BrokerAlive(NamedTuple):
    """Whether a broker runs, is not paused, and reaches the controllers. The world knows this; it does not come from
    the broker's messages."""

    broker: int
    alive: bool
    at_ms: int


class ControllersAlive(NamedTuple):
    """Whether a majority of the controllers runs and is connected. The world knows this."""

    alive: bool
    at_ms: int


class Unfenced(NamedTuple):
    """The brokers that are alive by the newest committed metadata."""

    brokers: frozenset[int]
    at_ms: int


class NodeFailed(NamedTuple):
    """A node could not go on, or refused to start. `explained` says that a fault of the world, such as a full disk, is
    the reason."""

    node: int
    error: str
    explained: bool


# --- replicas of partitions; `log` names topic and partition ---


class RoleSeen(NamedTuple):
    """A broker has a role for a partition in a leader epoch."""

    node: int
    life: int
    log: str
    epoch: int
    leads: bool


class ReplicaLogSeen(NamedTuple):
    """All entries of a replica's log from `start` on, in its files. The replica gives nobody a record below `first`."""

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
    """A replica some time after the faults have healed and the clients have stopped: its log from `first` on."""

    node: int
    log: str
    first: int
    high_watermark: int
    entries: tuple[Entry, ...]
    leads: bool


class ProduceAnswered(NamedTuple):
    """A broker answered for one partition of a Produce with acks=all. `led_then` says whether it was the leader by its
    own metadata when the request arrived, in `epoch`; `leads_now` whether it is now. `accepted` means without an error.
    A `repeatable` batch has a producer id: a broker that has it already accepts it again."""

    node: int
    log: str
    led_then: bool
    leads_now: bool
    accepted: bool
    epoch: int = -1
    arrived_ns: int = 0
    answered_ns: int = 0
    repeatable: bool = True


class CommitAnswered(NamedTuple):
    """A broker answered OffsetCommit of a group; `log` is the partition of __consumer_offsets that holds the group. The
    rest as in ProduceAnswered; the epoch is -1 if it did not lead then."""

    node: int
    group: str
    log: str
    epoch: int
    leads_now: bool
    accepted: bool
    arrived_ns: int
    answered_ns: int


class FollowerKnown(NamedTuple):
    """A follower as its leader knows it: the end of its log (-1: unknown), whether it is in the ISR or was proposed for
    it, and whether it is caught up and its broker may join."""

    broker: int
    end: int
    in_sync: bool
    may_join: bool


class LeaderSeen(NamedTuple):
    """A leader's high watermark, the min.insync.replicas that it knows, and its followers, in a leader epoch and a
    partition epoch. `in_sync` counts the members of its committed ISR, itself among them."""

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
    """A client got the answer that its change is made: the resource now has this value, or is gone when it is None.
    `order` counts the changes of a resource, which one client makes one after the other."""

    resource: str
    value: object
    order: int


class MetadataMaybe(NamedTuple):
    """A client sent a change of a resource, and the answer never came or was an error. The change may happen, even
    later."""

    resource: str
    value: object
    order: int


class MetadataSurvived(NamedTuple):
    """The resource's value at the end of a run, after all nodes have recovered."""

    resource: str
    value: object


class MayLoseRecords(NamedTuple):
    """From now on this topic may have unclean elections: nothing is promised for its records."""

    topic: str


class RecordsDeleted(NamedTuple):
    """A client is about to delete the records below an offset; it may hear of success, of failure or of nothing."""

    log: str
    before: int


class RecordAcknowledged(NamedTuple):
    """A client got the acknowledgement that a record is stored at an offset. `log` names topic and partition. The
    client first sent the record at `sent_ns`, and got the acknowledgement at `heard_ns`."""

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
    """A client asked for the records from `at` on, and got the records at `offsets` and the high watermark."""

    log: str
    at: int
    offsets: tuple[int, ...]
    high_watermark: int


class LatestListed(NamedTuple):
    """The leader of an epoch answered ListOffsets(latest) with this end of a log; the request was sent at `sent_ns`."""

    log: str
    epoch: int
    offset: int
    sent_ns: int


class ProducerRefused(NamedTuple):
    """A producer that sends each batch until it is acknowledged got an error from `node` after which it cannot go
    on."""

    log: str
    error: str
    node: int


class LogSurvived(NamedTuple):
    """Everything in the log of a partition at the end of a run."""

    log: str
    records: dict[int, bytes]


class CommitAcknowledged(NamedTuple):
    """A group's commit was acknowledged. Only one member of the group commits, and its offsets only rise."""

    group: str
    log: str
    offset: int


class CommitFetched(NamedTuple):
    """A node answered with a group's committed offset; -1 for no commit. `floor` is the highest offset whose commit was
    acknowledged before the request was sent, `ceiling` the highest that was ever sent."""

    group: str
    log: str
    offset: int
    floor: int
    ceiling: int


# --- progress ---


class Healed(NamedTuple):
    """From now on there are no faults: everything runs and is connected."""

    at_ms: int


class Progressed(NamedTuple):
    """Something that must happen after the faults heal has happened."""

    what: str
    at_ms: int


class TimePassed(NamedTuple):
    at_ms: int
