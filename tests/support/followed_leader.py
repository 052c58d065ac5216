"""A leader of some partitions, as its follower sees it. The leader has real logs, and Python code makes its
responses."""

from __future__ import annotations

import select
from pathlib import Path
from typing import Any

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.follow.handle import FetcherHandle
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.replication_quota import ReplicationQuota
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment, ManualClock
from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import FetchResponse, ListOffsetsResponse

NOW = 1_700_000_000_000
LEADER, FOLLOWER = 1, 2
LATEST = -1
LIMIT_S = 20
Key = tuple[Uuid, int]


def batch(value: bytes = b"v", count: int = 2, **fields: int) -> bytes:
    builder = RecordBatchBuilder(**fields)
    for _ in range(count):
        builder.append(timestamp=NOW, key=b"k", value=value)
    return builder.build()


def values(log: PartitionHandle) -> list[tuple[int, int, bytes | None]]:
    """Returns the offset, the leader epoch and the value of each record."""
    found = []
    at = log.log_start_offset
    while records := log.read(at).records:
        for one in Batches(records):
            found += [(record.offset, one.partition_leader_epoch, record.value) for record in one]
            at = one.next_offset
    return found


class Leader:
    """The leader. It answers Fetch and ListOffsets. `errors` maps partitions to the error codes of their answers.
    `change` may change a response before it is sent. `seen` holds all requests."""

    def __init__(self) -> None:
        self.logs: dict[Key, PartitionHandle] = {}
        self.epochs: dict[Key, int] = {}
        self.errors: dict[Key, ErrorCode] = {}
        self.session: dict[Key, Any] = {}
        self.session_id = 0
        self.keeps_sessions = True
        self.change = lambda answer: None
        self.seen: list[Any] = []

    def lead(self, log: PartitionHandle, epoch: int) -> None:
        assert log.become_leader(LEADER, epoch, epoch)
        self.logs[log.topic_id, log.index] = log
        self.epochs[log.topic_id, log.index] = epoch

    def answer(self, key: int, version: int, body: bytes) -> bytes:
        request = apis.request_class(key).decode(body, version)
        self.seen.append(request)
        answer = self._fetch(request) if key == ApiKey.FETCH else self._list_offsets(request)
        self.change(answer)
        made: bytes = answer.encode(version)
        return made

    def _fetch(self, request: Any) -> Any:
        if request.session_epoch == 0:
            self.session_id, self.session = self.session_id + 1 if self.keeps_sessions else 0, {}
        elif (request.session_id, bool(self.session)) != (self.session_id, True):
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        for topic in request.topics:
            self.session |= {self._key(topic, each.partition): each for each in topic.partitions}
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                del self.session[self._key(topic, index)]
        return FetchResponse(
            session_id=self.session_id,
            responses=[
                FetchResponse.FetchableTopicResponse(
                    topic=self.logs[key].topic if key in self.logs else "",
                    topic_id=key[0],
                    partitions=[self._partition(key, asked)],
                )
                for key, asked in self.session.items()
            ],
        )

    def _key(self, topic: Any, index: int) -> Key:
        """Returns the partition's key. Requests up to version 12 identify topics by name instead of by id."""
        named = [key for key, log in self.logs.items() if (log.topic, log.index) == (topic.topic, index)]
        return named[0] if named else (topic.topic_id, index)

    def _error(self, key: Key, epoch: int) -> ErrorCode:
        if key not in self.logs:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if epoch != self.epochs[key]:
            older = epoch < self.epochs[key]
            return ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
        return self.errors.get(key, ErrorCode.NONE)

    def _partition(self, key: Key, asked: Any) -> Any:
        data = FetchResponse.PartitionData(
            partition_index=key[1], error_code=self._error(key, asked.current_leader_epoch)
        )
        if data.error_code:
            return data
        read = self.logs[key].read(
            asked.fetch_offset, asked.partition_max_bytes, last_fetched_epoch=asked.last_fetched_epoch
        )
        data.error_code = read.error
        data.records = read.records
        data.high_watermark, data.log_start_offset = read.high_watermark, read.log_start_offset
        data.diverging_epoch.epoch, data.diverging_epoch.end_offset = read.diverging_epoch, read.diverging_end_offset
        return data

    def _list_offsets(self, request: Any) -> Any:
        names = {(log.topic, log.index): key for key, log in self.logs.items()}
        topics = []
        for topic in request.topics:
            (asked,) = topic.partitions
            key = names[topic.name, asked.partition_index]
            log = self.logs[key]
            told = ListOffsetsResponse.ListOffsetsPartitionResponse(
                partition_index=asked.partition_index,
                error_code=self._error(key, asked.current_leader_epoch),
                offset=log.end_offset if asked.timestamp == LATEST else log.log_start_offset,
            )
            topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=[told]))
        return ListOffsetsResponse(topics=topics)


class Replicas:
    """A leader, a follower with its fetcher, and the logs of both nodes."""

    def __init__(
        self,
        path: Path,
        *,
        backoff_ms: int = 1000,
        max_bytes: int = 1 << 20,
        environment: Environment | None = None,
        quota: ReplicationQuota | None = None,
        **settings: int,
    ) -> None:
        self.environment = environment or Environment(ManualClock(NOW))
        self.settings = LogSettings(**settings)
        self.quota = quota
        for name in ("leader", "follower"):
            (path / name).mkdir()
        self._theirs = LogDirectory(self.environment, str(path / "leader"))
        self._ours = LogDirectory(self.environment, str(path / "follower"))
        self.leader = Leader()
        self.fetcher = FetcherHandle(
            self.environment, FOLLOWER, backoff_ms=backoff_ms, max_bytes=max_bytes, quota=quota
        )
        self.fetcher.connected(18, 11, 77)
        self.now_ms = 0
        self.topic_id = Uuid.random()

    def log(self, index: int = 0, *, ours: bool) -> PartitionHandle:
        return PartitionHandle(self._ours if ours else self._theirs, "orders", index, self.topic_id, self.settings)

    def pair(self, index: int = 0, epoch: int = 5) -> tuple[PartitionHandle, PartitionHandle]:
        """Returns the leader's log of a partition, and the follower's log."""
        theirs, ours = self.log(index, ours=False), self.log(index, ours=True)
        self.leader.lead(theirs, epoch)
        self.follow(ours, epoch)
        return theirs, ours

    def follow(self, ours: PartitionHandle, epoch: int) -> None:
        assert ours.become_follower(LEADER, epoch, epoch)
        self.fetcher.follow(ours, epoch)

    def step(self) -> bool:
        """Exchanges one request and its response, if the fetcher has a request to send. Returns whether it had one."""
        asked = self.fetcher.ask()
        if asked is not None:
            self.fetcher.absorb(self.leader.answer(*asked))
        return asked is not None

    def deliver(self) -> None:
        """Waits until an I/O thread reports that its work is done, and delivers the report to the fetcher."""
        assert select.select([self.fetcher], [], [], LIMIT_S)[0], "no I/O thread reported anything"
        self.fetcher.deliver()

    def until(self, *states: tuple[PartitionHandle, str]) -> None:
        """Delivers reports until each partition is in the given state."""
        while any(self.fetcher.state(log) != state for log, state in states):
            self.deliver()

    def catch_up(self, *pairs: tuple[PartitionHandle, PartitionHandle]) -> None:
        for _ in range(50):
            self.step()
            self.until(*((ours, "fetches") for _, ours in pairs if self.fetcher.state(ours) in {"blocked", "cuts"}))
            if all(theirs.end_offset == ours.end_offset for theirs, ours in pairs):
                return
        raise AssertionError([(theirs.end_offset, ours.end_offset) for theirs, ours in pairs])

    def close(self) -> None:
        """Waits until the logs' I/O jobs have ended."""
        self._theirs.close()
        self._ours.close()
        vars(self).clear()  # pytest keeps a reference to the object itself for longer

    def pass_time(self, ms: int) -> int:
        self.now_ms += ms
        self.fetcher.advance(self.now_ms)
        return self.fetcher.due_ms
