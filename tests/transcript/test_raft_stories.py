"""Readable dialogues with one Raft replica. Each file in `raft/` contains one dialogue, called a story.

A line that begins with `>` is an input of the replica. Below it are all its outputs and its new state. To write the
answers of a new or changed story, run pytest with KAFKACORE_WRITE_TRANSCRIPTS=1 and read the difference.

    > start VOTERS [observer]     node 1 of the voters (`1,2,3`), with an empty disk
    > persisted                   the vote is on disk
    > synced                      the log is on disk
    > at MS                       time passes
    > grant FROM / reject FROM    voter FROM answers the open Vote
    > lead FROM EPOCH             BeginQuorumEpoch of a leader
    > ask FROM EPOCH LAST@EPOCH [pre]   a candidate asks for a vote; LAST is where its log ends
    > fetch FROM EPOCH OFFSET@EPOCH     a replica fetches
    > records EPOCH VALUE...      the leader answers the open Fetch with a batch of that epoch
    > diverge OFFSET@EPOCH / commit OFFSET / refused   three answers of the leader to the open Fetch
    > append VALUE...             the replica appends as leader
    > resign, restart
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from kafkacore._fast.record.batch import Batches
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import FetchRequest, FetchResponse, VoteRequest
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft import messages
from kafkacore.raft.control import data_batch
from kafkacore.raft.core import Answer, Raft, RaftConfig, Send
from kafkacore.raft.log import MemoryLog, OffsetAndEpoch
from kafkacore.raft.voters import ReplicaKey, Voter, VoterSet

STORIES = sorted((Path(__file__).parent / "raft").glob("*.txt"))
CLUSTER = "c"


class Evenly(Random):
    """A source of random numbers without chance: it always returns the middle of the range."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return start // 2 if stop is None else (start + stop) // 2

    def randint(self, a: int, b: int) -> int:
        return (a + b) // 2

    def choice(self, seq):
        return seq[0]


class Replica:
    def __init__(self) -> None:
        self.log = MemoryLog()
        self.now = 0
        self.saved = None
        self.open: dict[int, Send] = {}
        self.synced_end = 0
        self.was = ""

    def do(self, line: str) -> list[str]:
        name, *words = line.split()
        getattr(self, name)(*words)
        for work in self.raft.take_work():
            self.raft.done(work.number, work.effect.perform(self.log), self.now)
        told = [self.say(output) for output in self.raft.take_outputs()]
        role = type(self.raft.role).__name__.lower()
        is_ = (
            f"{role}, epoch {self.raft.epoch}, log {self.raft.log.start_offset}..{self.raft.log.end_offset}, "
            f"committed {self.raft.high_watermark}"
        )
        if is_ != self.was:
            told.append(f"is {is_}")
        self.was = is_
        return told

    # --- inputs ---

    def start(self, voters: str, kind: str = "voter") -> None:
        self.voters = VoterSet(Voter(ReplicaKey(int(v)), (("C", f"n{v}", 1),)) for v in voters.split(","))
        self.kind = kind
        self.restart()

    def restart(self) -> None:
        config = RaftConfig(node_id=1, directory_id=Uuid(b"d" * 16), cluster_id=CLUSTER, voters=self.voters,
                            can_vote=self.kind == "voter")  # fmt: skip
        self.log.crash(self.synced_end)
        self.open.clear()
        self.raft = Raft(config, self.log, self.saved, Evenly(), self.now, lambda: 0)

    def at(self, ms: str) -> None:
        self.now = int(ms)
        if self.raft.next_tick_ms <= self.now:
            self.raft.tick(self.now)

    def persisted(self) -> None:
        version, self.saved = self.raft.take_state()
        self.raft.persisted(version, self.now)

    def synced(self) -> None:
        sync = self.raft.take_sync()
        self.raft.durable(sync, self.now)
        self.synced_end = self.raft.durable_offset

    def append(self, *values: str) -> None:
        self.raft.append([value.encode() for value in values])

    def resign(self) -> None:
        self.raft.resign()

    def grant(self, voter: str) -> None:
        self.vote(int(voter), True)

    def reject(self, voter: str) -> None:
        self.vote(int(voter), False)

    def vote(self, voter: int, granted: bool) -> None:
        send = self.open.pop(voter)
        assert isinstance(send.request, VoteRequest)
        epoch = send.request.topics[0].partitions[0].replica_epoch
        response = messages.answer(send.request, (-1, epoch), None, error_code=0, vote_granted=granted)
        self.raft.response(send.correlation, response, self.now)

    def lead(self, leader: str, epoch: str) -> None:
        request = messages.begin_epoch(CLUSTER, ReplicaKey(1), int(leader), int(epoch), ())
        self.raft.request(f"BeginQuorumEpoch of {leader}", request, self.now)

    def ask(self, who: str, epoch: str, end: str, pre: str = "") -> None:
        request = messages.vote(CLUSTER, ReplicaKey(1), ReplicaKey(int(who)), int(epoch), place(end), pre == "pre")
        self.raft.request(f"Vote of {who}", request, self.now)

    def fetch(self, who: str, epoch: str, end: str) -> None:
        request = messages.fetch(CLUSTER, ReplicaKey(int(who)), int(epoch), place(end), -1)
        self.raft.request(f"Fetch of {who}", request, self.now)

    def leader_answers(self, **values) -> None:
        fetches = [send for send in self.open.values() if isinstance(send.request, FetchRequest)]
        send = max(fetches, key=lambda each: each.correlation)
        del self.open[send.to.node_id]
        values.setdefault("error_code", 0)
        response = messages.answer(send.request, (self.raft.leader_id, self.raft.epoch), None, **values)
        self.raft.response(send.correlation, response, self.now)

    def records(self, epoch: str, *values: str) -> None:
        data = data_batch([value.encode() for value in values], self.log.end_offset, int(epoch), 0)
        self.leader_answers(records=data, high_watermark=0)

    def commit(self, offset: str) -> None:
        self.leader_answers(records=b"", high_watermark=int(offset))

    def diverge(self, end: str) -> None:
        offset, epoch = place(end)
        made = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=offset)
        self.leader_answers(records=b"", diverging_epoch=made)

    def refused(self) -> None:
        self.leader_answers(records=b"", error_code=ErrorCode.FENCED_LEADER_EPOCH)

    # --- outputs ---

    def say(self, output: Send | Answer) -> str:
        if isinstance(output, Answer):
            return f"answers {output.token}: {self.answered(output.response)}"
        self.open[output.to.node_id] = output
        request = output.request
        part = request.topics[0].partitions[0]
        name = request.NAME.removesuffix("Request")
        if isinstance(request, VoteRequest):
            kind = "PreVote" if part.pre_vote else "Vote"
            end = f"{part.last_offset}@{part.last_offset_epoch}"
            return f"sends {output.to.node_id}: {kind} epoch {part.replica_epoch}, log ends {end}"
        if isinstance(request, FetchRequest):
            end = f"{part.fetch_offset}@{part.last_fetched_epoch}"
            return f"sends {output.to.node_id}: Fetch epoch {part.current_leader_epoch}, from {end}"
        return f"sends {output.to.node_id}: {name} epoch {part.leader_epoch}, leader {part.leader_id}"

    def answered(self, response) -> str:
        error, part = messages.answered(response)
        if error:
            return ErrorCode(error).name
        if response.NAME == "VoteResponse":
            return "granted" if part.vote_granted else "not granted"
        if response.NAME != "FetchResponse":
            return "yes"
        if part.diverging_epoch.epoch >= 0:
            return f"diverges after {part.diverging_epoch.end_offset}@{part.diverging_epoch.epoch}"
        found = [f"{batch.base_offset}..{batch.last_offset}" for batch in Batches(part.records or b"")]
        return f"batches {' '.join(found) or '-'}, committed {part.high_watermark}"


def place(text: str) -> OffsetAndEpoch:
    offset, epoch = text.split("@")
    return OffsetAndEpoch(int(offset), int(epoch))


def run(story: str) -> str:
    replica, out = Replica(), []
    for line in story.splitlines():
        if line.startswith("> "):
            out += [line, *[f"  {said}" for said in replica.do(line[2:])]]
        elif not line.startswith("  "):
            out.append(line)
    return "\n".join(out) + "\n"


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_replica_answers_as_in_its_story(path: Path) -> None:
    story = path.read_text()
    told = run(story)
    if os.environ.get("KAFKACORE_WRITE_TRANSCRIPTS"):
        path.write_text(told)
    assert told == path.read_text()
