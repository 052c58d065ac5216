"""Runs Apache Kafka's Partition and ours with the same commands (tests/interop/java/PartitionJudge.java lists them).

Our side is the native partition. It proposes ISRs when Apache Kafka does. A Fetch makes it propose to add the follower
that fetched. A periodic check makes it propose to remove all members that have fallen behind. (Our IsrManager would
propose both changes together.)
"""

from __future__ import annotations

import subprocess
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from brokers import java
from kafkacore._fast.log import partition_edges
from kafkacore._fast.log.partition_edges import PartitionEdges
from kafkacore._fast.log.partition_handle import FollowerState, PartitionHandle, become_rows
from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment, ManualClock
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.uuid import Uuid

JUDGE: Final = Path(__file__).parents[1] / "interop" / "java" / "PartitionJudge.java"
RELEASE: Final = "4.3.1"
NODE: Final = 1
LAG_MS: Final = 10_000
START_MS: Final = 1_700_000_000_000
WIDTH: Final = 4
MOST_BYTES: Final = 1 << 20
STATES: Final = {
    "active": partition_edges.ACTIVE, "leaving": partition_edges.LEAVING, "fenced": partition_edges.FENCED,
}  # fmt: skip
# If the controller returns one of these errors, it has not applied the change, so the leader withdraws its proposal.
NOT_APPLIED: Final = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA)
# If the controller returns one of these errors, the leader waits for newer metadata. After any other error it sends the
# proposal again.
METADATA_IS_NEWER: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.INVALID_REQUEST, ErrorCode.NEW_LEADER_ELECTED,
)  # fmt: skip

Answer = dict[str, str]


class Theirs:
    """Apache Kafka's partition. One Java process serves all test histories."""

    def __init__(self, path: Path) -> None:
        command = [*java(RELEASE, "512m"), str(JUDGE), str(path)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def do(self, command: str) -> Answer:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(command + "\n")
        stdin.flush()
        line = stdout.readline()
        assert line, f"the judge process ended after {command}"
        answer: Answer = dict(field.split("=", 1) for field in line.split())
        assert "unexpected" not in answer, answer
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)


def ids(word: str) -> list[int]:
    return [] if word == "-" else [int(each) for each in word.split(",")]


def joined(numbers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(numbers)))


def epoch(word: str) -> int:
    return -1 if word == "-" else int(word)


def batch(count: int, **fields: int) -> bytes:
    builder = RecordBatchBuilder(**fields)
    for _ in range(count):
        builder.append(timestamp=START_MS, key=None, value=b"v")
    return builder.build()


class Ours:
    """Our partition, on broker 1, with its log in `path`."""

    def __init__(self, path: Path) -> None:
        self._clock = ManualClock(wall_ms=START_MS)
        self._world = Environment(self._clock)
        path.mkdir(parents=True)
        self._directory = LogDirectory(self._world, str(path))
        self._edges = PartitionEdges(LAG_MS, self._world)
        self._brokers: dict[int, tuple[int, int]] = {}
        self._min_isr = 1
        self.log = PartitionHandle(self._directory, "orders", 0, Uuid(bytes(range(16))))
        self.log.report_to(self._edges)
        self.proposed: list[int] | None = None  # the proposed ISR that the controller has not answered yet
        self.was_reported = False  # whether a report of a possible ISR change was queued at the last proposal

    def close(self) -> None:
        self.log.retire()

    def do(self, command: str) -> Answer:
        name, *words = command.split(" ")
        answer: Answer = {"error": "0"}
        self._edges.take(8)
        answer.update(getattr(self, f"_{name}")(*words) or {})
        answer["hw_before"] = str(self.log.high_watermark)
        self._edges.check_lag()
        if not self.log.is_proposing:
            self.proposed = None
        return answer | self._state()

    # --- commands ---

    def _new(self, _topic: str, _lag_ms: str, min_isr: str) -> None:
        self._min_isr = int(min_isr)

    def _time(self, ms: str) -> None:
        self._clock.advance_ms(int(ms) - self._clock.wall_ms())

    def _broker(self, broker_id: str, state: str, broker_epoch: str) -> None:
        self._brokers.pop(int(broker_id), None)
        if state in STATES:
            self._brokers[int(broker_id)] = (STATES[state], int(broker_epoch))
        self._edges.set_brokers([(each, *self._brokers[each]) for each in self._brokers])

    def _role(
        self, leader: str, leader_epoch: str, partition_epoch: str, replicas: str, isr: str, recovery: str
    ) -> None:
        def column(numbers: Sequence[int]) -> array[int]:
            return array("i", [*numbers, *[-1] * (WIDTH - len(numbers))])

        become_rows(
            [self.log], NODE, array("i", [0]), array("i", [self._min_isr]), WIDTH,
            leader=array("i", [int(leader)]), leader_epoch=array("i", [int(leader_epoch)]),
            partition_epoch=array("i", [int(partition_epoch)]), replicas=column(ids(replicas)), isr=column(ids(isr)),
            recovery=bytearray([int(recovery)]),
        )  # fmt: skip

    def _append(self, count: str, acks: str) -> Answer:
        return {"error": str(self.log.append(batch(int(count)), int(acks), wait=False).error)}

    def _fetch(
        self, replica: str, broker_epoch: str, offset: str, log_start: str, current: str, last: str
    ) -> Answer:  # fmt: skip
        follower = (int(replica), int(broker_epoch), int(log_start))
        answer = self._read(int(offset), 2, current, last, follower)
        if answer["error"] == "0" and answer["diverges"] == "-1:-1" and not self.log.is_proposing:
            [mine] = [each for each in self.log.followers() if each.broker_id == follower[0]]
            if mine.may_join:
                answer |= self._propose([*self._isr(), mine.broker_id])
        return answer

    def _consume(self, offset: str, isolation: str, current: str, last: str) -> Answer:
        return self._read(int(offset), int(isolation), current, last, None)

    def _read(
        self, offset: int, isolation: int, current: str, last: str, follower: tuple[int, int, int] | None
    ) -> Answer:
        found = self.log.read(
            offset, MOST_BYTES, isolation, current_epoch=epoch(current), last_fetched_epoch=epoch(last),
            follower=follower,
        )  # fmt: skip
        if found.error:
            return {"error": str(found.error)}
        end = max((each.next_offset for each in Batches(found.records)), default=-1)
        return {
            "error": "0", "read": str(end), "diverges": f"{found.diverging_epoch}:{found.diverging_end_offset}",
            "seen": f"{found.high_watermark}:{found.last_stable_offset}:{found.log_start_offset}",
        }  # fmt: skip

    def _shrink(self) -> Answer:
        self._edges.check_lag()
        lagging = {each.broker_id for each in self.log.followers() if each.in_sync and each.lags}
        if self.log.role != "leader" or self.log.is_proposing or not lagging:
            return {}
        return self._propose([each for each in self._isr() if each not in lagging])

    def _propose(self, isr: list[int]) -> Answer:
        self.was_reported = bool(self._edges.take(8))
        assert self.log.propose_isr(isr, self.log.partition_epoch)
        self.proposed = isr
        return {"asked": joined(isr)}

    def _agree(self, isr: str, leader_epoch: str, partition_epoch: str) -> None:
        if self._answered() is not None:
            self.log.commit_isr(ids(isr), int(leader_epoch), int(partition_epoch))

    def _refuse(self, code: str) -> Answer:
        proposed = self._answered()
        if proposed is None or int(code) in METADATA_IS_NEWER:
            return {}
        if int(code) in NOT_APPLIED:
            self.log.withdraw_isr()
            return {}
        self.proposed = proposed
        return {"asked": joined(proposed)}

    def _answered(self) -> list[int] | None:
        proposed, self.proposed = self.proposed, None
        return proposed

    def forget_proposal(self) -> Answer:
        self.proposed = None
        self.log.withdraw_isr()
        self._edges.check_lag()
        return self._state()

    def _follow(self, leader_epoch: str, records: str) -> Answer:
        return {"error": str(self.log.append_as_follower(bytes.fromhex(records), int(leader_epoch)).error)}

    def _note(self, high_watermark: str, log_start: str) -> Answer:
        return {"error": str(self.log.note_leader(self.log.leader_epoch, int(high_watermark), int(log_start)))}

    def _truncate(self, offset: str) -> Answer:
        return {"error": str(self.log.truncate_as_follower(int(offset), self.log.leader_epoch))}

    def _restart(self, offset: str) -> Answer:
        return {"error": str(self.log.restart_as_follower(int(offset), self.log.leader_epoch))}

    def _delete(self, offset: str) -> Answer:
        error, low, _ = self.log.delete_records(int(offset))
        return {"error": str(error)} | ({} if error else {"low": str(low)})

    def _reached(self, offset: str) -> Answer:
        error = self.log.acknowledged(2, int(offset), self.log.generation) if self.log.role == "leader" else 6
        return {"reached": "-" if error is None else str(int(error))}

    def _latest(self, current: str) -> Answer:
        error = self._role_error(current)
        return {"error": str(error or (int(ErrorCode.OFFSET_NOT_AVAILABLE) if self.log.is_behind else 0))}

    def _ends(self, current: str, asked: str) -> Answer:
        error = self._role_error(current)
        found, end = (-1, -1) if error else self.log.epoch_end(int(asked))
        return {"ends": f"{error}:{found}:{end}"}

    def _role_error(self, current: str) -> int:
        return self.log.read(self.log.log_start_offset, MOST_BYTES, 0, current_epoch=epoch(current)).error

    # --- state ---

    def followers(self) -> list[FollowerState]:
        return self.log.followers()

    def _isr(self) -> list[int]:
        return [NODE, *(each.broker_id for each in self.log.followers() if each.in_sync)]

    def _state(self) -> Answer:
        log = self.log
        if log.role == "none":
            return {}
        state = {
            "role": log.role,
            "epochs": f"{log.leader_epoch}:{log.partition_epoch}",
            "log": f"{log.log_start_offset}:{log.end_offset}",
            "hw": str(log.high_watermark),
            "history": ",".join(f"{each}:{start}" for each, start in log.leader_epochs()),
        }
        if log.role == "leader":
            followers = log.followers()
            isr = self._isr()
            state |= {
                "isr": joined(isr),
                "maximal": joined([*isr, *(each.broker_id for each in followers if each.is_joining)]),
                "inflight": str(log.is_proposing).lower(),
                "low_now": str(log.low_watermark),
                "followers": ",".join(
                    sorted(
                        f"{each.broker_id}:{each.end_offset}:{each.log_start_offset}:{each.broker_epoch}"
                        for each in followers
                    )
                ),
            }
        return state
