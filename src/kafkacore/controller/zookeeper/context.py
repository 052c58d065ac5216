"""The controller's copy of the cluster's state, in columns. Each partition has a row (an index into the columns), and
each fact about partitions has a column.

Only the running event reads or changes this state. A row belongs to one partition as long as its topic exists. Events
in the queue identify a partition by topic and number, because its row may have been reused when the event runs.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

from kafkacore.controller.zookeeper import partition_states, replica_states
from kafkacore.controller.zookeeper.leadership import (
    EPOCH_DURING_DELETE,
    NO_ASSIGNMENT,
    NO_LEADER_EPOCH,
    Assignment,
    Ids,
    LeaderAndIsr,
    TopicPartition,
)
from kafkacore.controller.zookeeper.partition_states import PartitionState
from kafkacore.controller.zookeeper.replica_states import ReplicaState
from kafkacore.controller.zookeeper.surroundings import LiveBroker
from kafkacore.protocol.uuid import Uuid

LOG: Final = logging.getLogger("kafkacore.state.change")
State = TypeVar("State", PartitionState, ReplicaState)


class Topic(NamedTuple):
    """A topic. `rows` maps a partition's number to its row."""

    name: str
    topic_id: Uuid | None
    rows: dict[int, int]


class Replica(NamedTuple):
    row: int
    broker_id: int


class ControllerContext:
    """The controller's copy of the cluster's state. The controller drops the context when it resigns, and creates a new
    one when it is elected again."""

    def __init__(self, epoch: int = 0, epoch_version: int = 0) -> None:
        self.epoch = epoch  # the epoch of this controller, which every request to a broker contains
        self.epoch_version = epoch_version  # the version of `/controller_epoch` that fences every write

        self.brokers: dict[int, LiveBroker] = {}  # the brokers that are live or shutting down
        self.shutting_down: set[int] = set()
        self.rows_on_offline_directories: dict[int, set[int]] = {}  # broker id: rows of its offline replicas

        self.topics: dict[str, Topic] = {}
        self.topic_names: dict[Uuid, str] = {}

        # The columns, with one entry for each row. The name of an unused row is None.
        self.names: list[TopicPartition | None] = []
        self.assignments: list[Assignment] = []
        self.leaderships: list[LeaderAndIsr | None] = []
        self.partition_states = bytearray()
        self._free_rows: list[int] = []
        # For each broker, the states of its replicas by row. A replica that does not exist has no entry.
        self.replica_states: dict[int, dict[int, ReplicaState]] = {}

        self.reassigned: set[int] = set()  # rows that are being reassigned; changed by `begin_moves` and `end_moves`
        self._moves: Counter[str] = Counter()  # topic: its number of rows in `reassigned`
        self.topics_to_delete: set[str] = set()
        self.topics_in_deletion: set[str] = set()  # topics whose deletion has begun (see `topic_deletion`)
        self.ineligible_topics: set[str] = set()  # topics whose deletion waits

        self.finalized_features: dict[str, int] = {}
        self.refused_transitions: Counter[str] = Counter()

    # --- brokers ---

    def is_live(self, broker_id: int) -> bool:
        return broker_id in self.brokers and broker_id not in self.shutting_down

    def live_broker_ids(self) -> set[int]:
        return self.brokers.keys() - self.shutting_down

    def is_online(self, row: int, broker_id: int, *, or_shutting_down: bool = False) -> bool:
        """Returns whether the replica's broker is live and the replica's log directory works."""
        if broker_id not in self.brokers or (broker_id in self.shutting_down and not or_shutting_down):
            return False
        rows = self.rows_on_offline_directories.get(broker_id)
        return not rows or row not in rows

    @property
    def has_offline_directories(self) -> bool:
        """Whether any log directory has failed. Otherwise partitions with the same replicas have the same online
        replicas."""
        return any(self.rows_on_offline_directories.values())

    def online_replicas(self, row: int, replicas: Ids, *, or_shutting_down: bool = False) -> Ids:
        return tuple(each for each in replicas if self.is_online(row, each, or_shutting_down=or_shutting_down))

    # --- topics and partitions ---

    def add_topic(self, name: str, topic_id: Uuid | None) -> Topic:
        topic = self.topics[name] = Topic(name, topic_id, {})
        if topic_id is not None:
            self.topic_names[topic_id] = name
        return topic

    def add_partition(self, topic: Topic, number: int, assignment: Assignment) -> int:
        """Adds a partition in state NON_EXISTENT, and returns its row."""
        name = TopicPartition(topic.name, number)
        if self._free_rows:
            row = self._free_rows.pop()
            self.names[row], self.assignments[row] = name, assignment
        else:
            row = len(self.names)
            self.names.append(name)
            self.assignments.append(assignment)
            self.leaderships.append(None)
            self.partition_states.append(PartitionState.NON_EXISTENT)
        topic.rows[number] = row
        return row

    def remove_topic(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        for deletion in (self.topics_to_delete, self.topics_in_deletion, self.ineligible_topics):
            deletion.discard(name)
        if topic is None:
            return
        if topic.topic_id is not None:
            self.topic_names.pop(topic.topic_id, None)
        rows = set(topic.rows.values())
        self.end_moves(rows)
        for row in rows:
            self.names[row], self.assignments[row], self.leaderships[row] = None, NO_ASSIGNMENT, None
            self.partition_states[row] = PartitionState.NON_EXISTENT
        for column in self.replica_states.values():
            for row in rows & column.keys():
                del column[row]
        for offline_rows in self.rows_on_offline_directories.values():
            offline_rows.difference_update(rows)
        self._free_rows.extend(rows)

    def row(self, topic: str, number: int) -> int | None:
        found = self.topics.get(topic)
        return None if found is None else found.rows.get(number)

    def name(self, row: int) -> TopicPartition:
        name = self.names[row]
        assert name is not None, f"row {row} is free"
        return name

    def rows(self) -> Iterator[int]:
        for topic in self.topics.values():
            yield from topic.rows.values()

    def rows_of(self, topics: Iterable[str]) -> list[int]:
        return [row for name in topics if name in self.topics for row in self.topics[name].rows.values()]

    def is_deleted(self, row: int) -> bool:
        """Returns whether the partition's topic is being deleted. Returns False while the deletion waits for a
        reassignment of the topic, because the reassignment would never end if the partition had no leader."""
        return bool(self.topics_to_delete) and self.is_doomed(row) and not self.is_moved(self.name(row).topic)

    def is_doomed(self, row: int) -> bool:
        """Returns whether the partition's topic is queued for deletion."""
        return self.name(row).topic in self.topics_to_delete

    def is_moved(self, topic: str) -> bool:
        """Returns whether a partition of the topic is being reassigned."""
        return topic in self._moves

    def begin_moves(self, rows: Iterable[int]) -> None:
        for row in set(rows) - self.reassigned:
            self.reassigned.add(row)
            self._moves[self.name(row).topic] += 1

    def end_moves(self, rows: Iterable[int]) -> None:
        for row in self.reassigned.intersection(rows):
            self.reassigned.remove(row)
            topic = self.name(row).topic
            self._moves[topic] -= 1
            if not self._moves[topic]:
                del self._moves[topic]

    # --- replicas ---

    def replicas_of(self, rows: Iterable[int]) -> list[Replica]:
        return [Replica(row, broker_id) for row in rows for broker_id in self.assignments[row].replicas]

    def rows_on(self, broker_id: int) -> list[int]:
        """Returns the rows of the partitions that have a replica on the broker."""
        return [row for row in self.rows() if broker_id in self.assignments[row].replicas]

    def replica_state(self, replica: Replica) -> ReplicaState:
        return self.replica_states.get(replica.broker_id, {}).get(replica.row, ReplicaState.NON_EXISTENT)

    def replicas_in(self, topic: str, state: ReplicaState) -> list[Replica]:
        return [each for each in self.replicas_of(self.rows_of([topic])) if self.replica_state(each) is state]

    # --- leadership ---

    def rows_with_offline_leader(self) -> list[int]:
        """Returns the rows of partitions whose leader is not online. Leaves out topics that are being deleted."""
        live = self.live_broker_ids()
        directories_failed = self.has_offline_directories
        return [
            row
            for row in self.rows()
            if (now := self.leaderships[row]) is not None
            and (now.leader not in live or (directories_failed and not self.is_online(row, now.leader)))
            and not self.is_deleted(row)
        ]

    def leader_epoch(self, row: int) -> int:
        """Returns the leader epoch to send in a StopReplica request (KIP-570)."""
        if self.is_deleted(row):
            return EPOCH_DURING_DELETE
        now = self.leaderships[row]
        return NO_LEADER_EPOCH if now is None else now.leader_epoch

    # --- transitions: every change of a partition's or replica's state uses these methods ---

    def may_move_partitions(self, rows: Iterable[int], target: PartitionState) -> list[int]:
        """Returns the rows whose partitions can change to state `target`. Logs and counts an illegal transition for
        every other row."""
        states = self.partition_states
        allowed = _sources(partition_states.TRANSITIONS, target)
        valid = []
        for row in rows:
            if states[row] in allowed:
                valid.append(row)
            else:
                self._refuse(f"partition {self.name(row)}", PartitionState(states[row]).name, target.name)
        return valid

    def set_partition_states(self, rows: Iterable[int], target: PartitionState) -> None:
        for row in rows:
            self.partition_states[row] = target

    def move_partitions(self, rows: Iterable[int], target: PartitionState) -> list[int]:
        """Changes the state of those partitions for which the transition is allowed, and returns their rows."""
        valid = self.may_move_partitions(rows, target)
        self.set_partition_states(valid, target)
        return valid

    def may_move_replicas(self, replicas: Iterable[Replica], target: ReplicaState) -> list[Replica]:
        """Returns the replicas that can change to state `target`. Logs and counts an illegal transition for every other
        replica."""
        allowed = _sources(replica_states.TRANSITIONS, target)
        valid = []
        for replica in replicas:
            state = self.replica_state(replica)
            if state in allowed:
                valid.append(replica)
            else:
                what = f"replica {replica.broker_id} of {self.name(replica.row)}"
                self._refuse(what, state.name, target.name)
        return valid

    def set_replica_states(self, replicas: Iterable[Replica], target: ReplicaState) -> None:
        for row, broker_id in replicas:
            column = self.replica_states.setdefault(broker_id, {})
            if target is ReplicaState.NON_EXISTENT:
                column.pop(row, None)
            else:
                column[row] = target

    def move_replicas(self, replicas: Iterable[Replica], target: ReplicaState) -> list[Replica]:
        """Changes the state of those replicas for which the transition is allowed, and returns these replicas."""
        valid = self.may_move_replicas(replicas, target)
        self.set_replica_states(valid, target)
        return valid

    def _refuse(self, what: str, state: str, target: str) -> None:
        self.refused_transitions[f"{state} -> {target}"] += 1
        LOG.error("controller epoch %d: refused to move %s from %s to %s", self.epoch, what, state, target)


def _sources(transitions: Mapping[State, frozenset[State]], target: State) -> frozenset[State]:
    """Returns the states from which `target` can be reached in one transition."""
    return frozenset(state for state, following in transitions.items() if target in following)
