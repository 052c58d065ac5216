"""A Raft replica with an instant disk. A test acts as the other nodes of its quorum."""

from __future__ import annotations

from random import Random
from typing import Any

from kafkacore.protocol.messages import FetchResponse, VoteRequest
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft import messages, snapshots
from kafkacore.raft.control import data_batch
from kafkacore.raft.core import Answer, Raft, RaftConfig, Send
from kafkacore.raft.log import MemoryLog, OffsetAndEpoch
from kafkacore.raft.voters import ReplicaKey, Voter, VoterHistory, VoterSet
from kafkacore.storage.quorum_state import QuorumState

CLUSTER = "c"
OTHER = ReplicaKey(2)
ME = ReplicaKey(1)


def voters(*node_ids: int) -> VoterSet:
    return VoterSet(Voter(ReplicaKey(each), (("CONTROLLER", f"n{each}", 9093),)) for each in node_ids)


class Replica:
    """Node 1 with an instant disk. `states` holds all quorum states that the node has written."""

    def __init__(self, *node_ids: int, state: QuorumState | None = None, log: Any = None, **config: Any) -> None:
        self.log = MemoryLog() if log is None else log
        self.states: list[QuorumState] = []
        self.now = 0
        self._peeked: Send | None = None
        values = RaftConfig(1, Uuid(b"d" * 16), CLUSTER, voters=voters(*node_ids), **config)
        self.raft = Raft(values, self.log, state, Random(1), 0, lambda: 0)
        self.settle()

    def settle(self) -> None:
        """Immediately does the work that a driver does between two inputs."""
        state = self.raft.take_state()
        while state is not None:
            self.states.append(state[1])
            self.raft.persisted(state[0], self.now)
            state = self.raft.take_state()
        work = self.raft.take_work()
        while work:
            for each in work:
                self.raft.done(each.number, each.effect.perform(self.log), self.now)
            work = self.raft.take_work()
        sync = self.raft.take_sync()
        if sync is not None:
            getattr(self.log, "flush", bool)()
            self.raft.durable(sync, self.now)

    def ask(self, request: Any) -> int:
        """Sends a request to the replica. Returns the error code of the answer."""
        self.raft.take_outputs()
        self.raft.request("token", request, self.now)
        self.settle()
        [answer] = [each for each in self.raft.take_outputs() if isinstance(each, Answer)]
        return messages.answered(answer.response)[0]

    def peek(self) -> Any:
        """Returns the request that `answer` answers next."""
        if self._peeked is None:
            self._peeked = self.next_send()
        return self._peeked.request

    def next_send(self) -> Send:
        """Returns the next request that the replica sends, even if errors in earlier answers delay it."""
        if self._peeked is not None:
            send, self._peeked = self._peeked, None
            return send
        for _ in range(3):
            self.settle()
            sends = [each for each in self.raft.take_outputs() if isinstance(each, Send)]
            if sends:
                return sends[-1]
            self.now = self.raft.next_tick_ms
            self.raft.tick(self.now)
        raise AssertionError("the replica sends nothing")

    def follow(self, epoch: int, *values: bytes) -> None:
        """Makes the replica follow node 2 in `epoch`. Its log contains `values`, and all but the last value are
        committed."""
        self.raft.replica.become_follower(epoch, 2, ("n2", 9093))
        if values:
            first = self.log.end_offset
            for value in values:
                data = data_batch([value], self.log.end_offset, epoch, 0)
                self.answer(records=data, high_watermark=self.log.end_offset)
            assert self.log.end_offset == first + len(values)

    def lead(self) -> None:
        """Makes the replica win an election with the votes of all voters that it asks."""
        for _ in range(200):
            self.settle()
            outputs = self.raft.take_outputs()
            for send in outputs:
                if isinstance(send, Send) and isinstance(send.request, VoteRequest):
                    asked = send.request.topics[0].partitions[0]
                    granted = messages.answer(
                        send.request, (-1, asked.replica_epoch), None, error_code=0, vote_granted=True
                    )
                    self.raft.response(send.correlation, granted, self.now)
            self.settle()
            if self.raft.is_leader:
                return
            if not outputs:
                self.now = max(self.now, self.raft.next_tick_ms)
                self.raft.tick(self.now)
        raise AssertionError(f"the replica did not become leader, it is {self.raft.role}")

    def fetch_of(self, node_id: int, offset: int, epoch: int) -> tuple[int, Any]:
        """Sends the Fetch of voter `node_id`, whose log ends at `offset` in `epoch`. Returns the error code and the
        partition in the answer."""
        end = OffsetAndEpoch(offset, epoch)
        request = messages.fetch(CLUSTER, ReplicaKey(node_id), self.raft.epoch, end, -1)
        request.max_wait_ms = 0
        self.raft.take_outputs()
        self.raft.request("fetch", request, self.now)
        self.settle()
        [answer] = [each for each in self.raft.take_outputs() if isinstance(each, Answer) and each.token == "fetch"]
        return messages.answered(answer.response)

    def answer(self, *, leader: tuple[int, int] | None = None, **values: Any) -> Send:
        """Answers the replica's next request as the leader. Returns that request."""
        send = self.next_send()
        values.setdefault("error_code", 0)
        leader = leader or (self.raft.leader_id, self.raft.epoch)
        response = messages.answer(send.request, leader, None, **values)
        self.raft.response(send.correlation, response, self.now)
        self.settle()
        return send


def naming(api: str, epoch: int) -> Any:
    """Returns a request from node 2 that contains `epoch` as the leader epoch."""
    if api in ("Vote", "PreVote"):
        return messages.vote(CLUSTER, ME, OTHER, epoch, OffsetAndEpoch(5, 1), api == "PreVote")
    if api == "BeginQuorumEpoch":
        return messages.begin_epoch(CLUSTER, ME, 2, epoch, (("CONTROLLER", "n2", 9093),))
    return messages.end_epoch(CLUSTER, 2, epoch, [ME], ())


def diverging(end_offset: int, epoch: int) -> dict[str, Any]:
    """Returns the fields of a Fetch answer that tell a follower where the two logs diverge."""
    return {"records": b"", "diverging_epoch": FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)}


def snapshot_of(snapshot_id: OffsetAndEpoch, *values: bytes) -> bytes:
    parts = snapshots.snapshot_parts(snapshot_id, iter(values), VoterHistory(VoterSet()), 1, 2)
    return b"".join(parts)
