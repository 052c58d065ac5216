"""Clients whose actions the seed decides. They change topics and configurations, send records, and commit offsets of
groups. They report all answers to the judge, which passes them to the checkers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from kafkacore.raft.control import data_batch
from kafkacore.simulation.actor import Actor
from kafkacore.simulation.checkers.observations import (
    CommitAcknowledged,
    CommitFetched,
    MayLoseRecords,
    MetadataAcknowledged,
    MetadataMaybe,
    ProducerRefused,
    Progressed,
    RecordAcknowledged,
    RecordsDeleted,
    RecordsSent,
)
from kafkacore.simulation.cluster import SimulatedNodes
from kafkacore.simulation.judge import Judge
from kafkacore.simulation.producing import FATAL, Batch, Producer, answer_for, produce_request
from kafkacore.simulation.reading import NO_ERROR, SeededReader, Written
from kafkacore.simulation.routes import TIMEOUT_MS, Routes

TOPIC: Final = 2
SET: Final = 0
PRODUCE_TIMEOUTS_MS: Final = (1_000, 5_000, 25_000)
MAX_TOPICS: Final = 2  # few, so that faults hit every partition while the client writes to it
MAX_PARTITIONS: Final = 2
LOSSY_SHARE: Final = 0.25
NEVER: Final = str((1 << 63) - 1)
PIPELINED_SHARE: Final = 0.3  # the share of writes with two batches in flight
GIVES_UP_SHARE: Final = 0.3  # how often a producer gives up instead of sending its batches again
# The numbers of bytes that pad a record. Some batches are larger than a sector, so that a power cut can tear them.
PADDINGS: Final = (0, 0, 0, 1_500)
LEADER_ONLY_SHARE: Final = 0.25  # the share of batches with acks=1, whose records may be only on the leader
RETENTION: Final = "retention.ms"
MIN_ISR: Final = "min.insync.replicas"
UNCLEAN: Final = "unclean.leader.election.enable"
NS_OF_A_MS: Final = 1_000_000
# The newest versions in which requests contain the topic's name instead of its id.
PRODUCE, COMMIT, FETCH_COMMIT = 9, 8, 8


class SeededClient(Actor):
    """A client with its own topics, groups and values. No other client changes these, so the client knows which of them
    must exist. Its `reader` reads the topics at the same time.

    The client does one thing at a time, except that writes to several partitions may wait at the same time. `replicas`
    and `configs` apply to its topics, but some topics have only one replica. An `idempotent` client sends each batch
    again until a broker acknowledges it, or until the client gives up. Any other client sends each batch once. `lossy`
    holds the names of topics that allow unclean elections or never sync. No checker requires that the records of these
    topics survive.
    """

    def __init__(
        self,
        cluster: SimulatedNodes,
        judge: Judge,
        name: str,
        random: Random,
        replicas: int,
        configs: Mapping[str, str],
        lossy: dict[str, None],
    ) -> None:
        super().__init__(cluster, name)
        self._routes = Routes(cluster, name, random)
        self._cluster, self._judge, self._random, self._name = cluster, judge, random, name
        self._replicas, self._configs, self._lossy = replicas, configs, lossy
        self._written = Written(lossy)
        self.reader = SeededReader(cluster, judge, f"{name}-reader", Random(f"{random.random()} reader"), self._written)
        self._is_idempotent = random.random() < 0.7
        self._producer: Producer | None = None
        self._writes: dict[tuple[str, int], asyncio.Task[bool]] = {}
        self._topics: dict[str, int] = {}  # maps each topic that must exist to its number of partitions
        self._doomed: dict[str, None] = {}
        self._made = self._values = self._orders = 0
        # For each group and log: the last acknowledged offset, and the highest offset that the client has sent.
        self._commits: dict[tuple[str, str], tuple[int, int]] = {}
        # The lowest offset whose commit got no answer. This commit may still arrive, even after later commits.
        self._unanswered: dict[tuple[str, str], int] = {}
        self.resources: dict[str, None] = {}  # every resource that this client asked to change

    def check(self) -> None:
        super().check()
        for task in self._writes.values():
            if task.done():
                task.result()

    def begin_writing(self) -> asyncio.Task[None]:
        """Starts to write to every partition, until a write to each is acknowledged. Call this after `stop`."""
        return self._client.start(self.write_everywhere())

    def begin_reading(self) -> asyncio.Task[None]:
        """Starts to read every commit back. Call this after `stop`."""
        return self._client.start(self.read_commits())

    async def _work(self) -> None:
        while not self._is_stopped:
            await asyncio.sleep(self._random.choice((0.001, 0.02, 0.1)))
            await self.act()
        await asyncio.gather(*self._writes.values())

    async def act(self) -> None:
        what = self._random.choices(
            (
                self.create, self.delete, self.grow, self.configure, self.produce, self.delete_records, self.commit,
                self.look,
            ),
            (2, 1, 1, 1, 14, 3, 3, 2),
        )[0]  # fmt: skip
        await what()

    def _see(self, observation: Any) -> None:
        self._judge.see(observation)

    def _progressed(self, what: str) -> None:
        self._see(Progressed(what, self._now_ns // NS_OF_A_MS))

    async def _change(self, resource: str, value: object, request: Any, error_of: Callable[[Any], int]) -> bool:
        """Requests a change of the metadata. Returns whether the change was acknowledged, and reports this to the
        judge. A change that was not acknowledged may have been made nevertheless."""
        self._orders += 1
        order = self._orders
        self.resources[resource] = None
        began_ns = self._now_ns
        answer = await self._routes.ask(request)
        sure = answer is not None and error_of(answer) == NO_ERROR
        if sure:
            self._see(MetadataAcknowledged(resource, value, order, (self._now_ns - began_ns) // NS_OF_A_MS))
            self._progressed("commit")
        else:
            self._see(MetadataMaybe(resource, value, order))
        return sure

    # --- topics ---

    async def create(self) -> None:
        if len(self._topics) >= MAX_TOPICS:
            return
        self._made += 1
        name, partitions = f"{self._name}-{self._made}", self._random.randint(1, 2)
        replicas = self._random.choice((1, *[self._replicas] * 3))
        values = dict(self._configs)
        if replicas > 1:
            values[MIN_ISR] = self._random.choice(("1", "2"))
        if self._random.random() < LOSSY_SHARE:
            # A topic with one replica never syncs, so a power cut can remove its records. A topic with more replicas
            # can lose records in unclean elections.
            values |= {UNCLEAN: "true"} if replicas > 1 else {"flush.messages": NEVER}
            self._lossy[name] = None
            self._see(MayLoseRecords(name))
        if self._random.random() < 0.3:
            values["segment.ms"] = "1000"
        configs = [CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in values.items()]
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replicas, configs=configs
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        if await self._change(f"topic {name}", True, request, lambda answer: answer.topics[0].error_code):
            if self._random.random() < 0.1:
                self._doomed[name] = None
            else:
                self._topics[name] = partitions

    async def delete(self) -> None:
        if not self._doomed:
            self._give_up(self._topic())
            return
        name = next(iter(self._doomed))
        state = DeleteTopicsRequest.DeleteTopicState(name=name)
        request = DeleteTopicsRequest(topics=[state], timeout_ms=TIMEOUT_MS)
        if await self._change(f"topic {name}", None, request, lambda answer: answer.responses[0].error_code):
            del self._doomed[name]

    def _give_up(self, name: str | None) -> None:
        """Stops tracking a topic, which the caller then deletes. From now on, the client does not know the content of
        the topic."""
        if name is None or len(self._topics) < 2:
            return
        del self._topics[name]
        self._doomed[name] = None
        self._written.forget(name)
        self._routes.forget(name)
        self._commits = {key: value for key, value in self._commits.items() if key[1] != f"{name}-0"}
        for kind in ("partitions", "config"):
            self.resources.pop(f"{kind} {name}", None)
        if self._producer is not None:
            self._producer.forget(name)

    async def grow(self) -> None:
        name = self._topic()
        if name is None or self._topics[name] >= MAX_PARTITIONS:
            return
        count = self._topics[name] + 1
        topic = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        if await self._change(f"partitions {name}", count, request, lambda answer: answer.results[0].error_code):
            self._topics[name] = count

    async def configure(self) -> None:
        name = self._topic()
        if name is None:
            return
        value = str(self._random.randrange(1 << 40, 1 << 41))  # decades, so that retention deletes nothing during a run
        config = IncrementalAlterConfigsRequest.AlterableConfig(name=RETENTION, config_operation=SET, value=value)
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=TOPIC, resource_name=name, configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        await self._change(f"config {name}", value, request, lambda answer: answer.responses[0].error_code)

    def _topic(self) -> str | None:
        return self._random.choice(list(self._topics)) if self._topics else None

    # --- records ---

    async def produce(self) -> None:
        """Starts to write to a partition, unless an earlier write to this partition is not complete."""
        name = self._topic()
        if name is None:
            return
        partition = name, self._random.randrange(self._topics[name])
        self._writes = {key: task for key, task in self._writes.items() if not task.done()}
        if partition not in self._writes:
            self._writes[partition] = asyncio.get_running_loop().create_task(self._produce(*partition))

    async def _produce(self, name: str, index: int) -> bool:
        """Sends one batch, or two at once. Returns whether all replicas in sync have acknowledged these batches."""
        if self._is_idempotent and not await self._has_producer():
            return False
        # A record that was acknowledged with acks=1 may still be lost, so no checker requires that it survives.
        is_sure = self._is_stopped or self._random.random() > LEADER_ONLY_SHARE
        producer = None if name in self._lossy or not is_sure else self._producer
        if producer is None:
            return await self._send(None, name, index, self._new_batch(None, name, index), is_sure=is_sure)
        if producer.in_flight(name, index) and self._random.random() < GIVES_UP_SHARE:
            producer.give_up()
        wanted = 2 if producer.is_known(name, index) and self._random.random() < PIPELINED_SHARE else 1
        while len(producer.in_flight(name, index)) < wanted:
            self._new_batch(producer, name, index)
        sends = [self._send(producer, name, index, batch) for batch in producer.in_flight(name, index)]
        return all(await asyncio.gather(*sends))

    async def _has_producer(self) -> bool:
        """Asks for a producer id, if there is none yet. Returns whether there is one."""
        if self._producer is not None:
            return True
        answer = await self._routes.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TIMEOUT_MS))
        if answer is None or answer.error_code:
            return False
        self._use(Producer(answer.producer_id, answer.producer_epoch))
        return True

    def _use(self, producer: Producer) -> None:
        """Uses this producer, unless another write has got one meanwhile."""
        if self._producer is None:
            self._producer = producer

    async def _send(
        self, producer: Producer | None, name: str, index: int, batch: Batch, *, is_sure: bool = True
    ) -> bool:
        """Sends one batch. Returns whether all replicas in sync have acknowledged it."""
        may_be_refused = producer is None or producer.may_be_refused(name, index, batch)
        asked = await self._routes.leader_of(name, index) or self._routes.any_broker()
        timeout_ms = self._random.choice(PRODUCE_TIMEOUTS_MS)
        request = produce_request(name, index, batch.data, timeout_ms, acks=-1 if is_sure else 1)
        answer = await self._routes.ask(request, PRODUCE, asked, timeout_ms + 500)
        told = None if answer is None else answer_for(answer)
        if is_sure:
            return self._hear(producer, name, index, batch, None if may_be_refused else asked, told)
        if told is None or told.error_code:
            self._doubt_leader(name, index)
        return False

    async def write_everywhere(self) -> None:
        for name, count in self._topics.items():
            for index in range(count):
                while not await self._produce(name, index):  # noqa: ASYNC110 - another try, not a wait for an event
                    await asyncio.sleep(0.1)

    def _new_batch(self, producer: Producer | None, name: str, index: int) -> Batch:
        values = []
        for _ in range(self._random.choice((1, 1, 3))):
            self._values += 1
            padding = b"." * self._random.choice(PADDINGS)
            values.append(b"%s-%d%s" % (self._name.encode(), self._values, padding))
        self._see(RecordsSent(f"{name}-{index}", tuple(values)))
        wall_ms, now_ns = self._routes.wall_ms, self._now_ns
        if producer is not None:
            return producer.begin(name, index, values, wall_ms, now_ns)
        data = data_batch(values, 0, -1, wall_ms)
        assert data is not None
        return Batch(values, data, now_ns)

    def _hear(
        self, producer: Producer | None, name: str, index: int, batch: Batch, asked: int | None, told: Any | None
    ) -> bool:
        """Handles the result of a batch. `told` is the response of the broker `asked`, or None if no response came.
        `asked` is None if a broker may refuse the batch, for example because an earlier batch was in flight. Returns
        whether the response acknowledges the batch."""
        log = f"{name}-{index}"
        if told is None or told.error_code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._doubt_leader(name, index)
            if told is not None and producer is not None and told.error_code in FATAL:
                if asked is not None and not producer.may_be_refused(name, index, batch):
                    self._see(ProducerRefused(log, ErrorCode(told.error_code).name, asked))
                elif asked is not None and producer.in_flight(name, index)[:1] == [batch]:
                    producer.give_up()
            return False
        if producer is not None:
            producer.end(name, index, batch)
        if told.error_code == ErrorCode.NONE:
            for offset, value in enumerate(batch.values, told.base_offset):
                self._see(RecordAcknowledged(log, offset, value, batch.sent_ns, self._now_ns))
            if name in self._topics:
                end = told.base_offset + len(batch.values)
                self._written.ends[name, index] = max(self._written.ends.get((name, index), 0), end)
            self._progressed("record")
        return True

    def _doubt_leader(self, name: str, index: int) -> None:
        """Often drops the cached leader, so that the next request looks the leader up again."""
        if self._random.random() < 0.5:
            self._routes.doubt(name, index)

    @property
    def _now_ns(self) -> int:
        return self._cluster.schedule.now_ns

    async def delete_records(self) -> None:
        if not self._written.ends:
            return
        (name, index), end = self._random.choice(list(self._written.ends.items()))
        floor = self._written.floors.get((name, index), 0)
        if floor >= end - 1:
            return
        before = self._written.floors[name, index] = self._random.randint(floor + 1, end - 1)
        self._see(RecordsDeleted(f"{name}-{index}", before))
        partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=before)
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name=name, partitions=[partition])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        answer = await self._routes.ask(request, None, await self._routes.leader_of(name, index))
        if answer is None or answer.topics[0].partitions[0].error_code:
            self._routes.doubt(name, index)

    async def read_commits(self) -> None:
        """Reads every commit. Retries each read until it succeeds."""
        for group, log in self._commits:
            await self._look_until_known(group, log)

    async def _look_until_known(self, group: str, log: str) -> None:
        known = False
        while not known:
            known = await self._look(group, log)
            await asyncio.sleep(0.1)

    # --- groups ---

    async def commit(self) -> None:
        name = self._topic()
        if name is None:
            return
        key = (f"group-{self._name}-{self._random.randrange(2)}", f"{name}-0")
        acknowledged, sent = self._commits.get(key, (-1, -1))
        offset = sent + self._random.randint(1, 5)
        self._commits[key] = (acknowledged, offset)
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=name, partitions=[partition])
        request = OffsetCommitRequest(group_id=key[0], generation_id_or_member_epoch=-1, topics=[topic])
        # The first FindCoordinator request creates the topic __consumer_offsets.
        await self._routes.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[key[0]]))
        answer = await self._routes.ask(request, COMMIT)
        if answer is None:
            self._unanswered.setdefault(key, offset)
        elif answer.topics[0].partitions[0].error_code == NO_ERROR:
            self._commits[key] = (offset, offset)
            self._see(CommitAcknowledged(*key, offset))
            self._progressed("group commit")

    async def look(self) -> None:
        if self._commits:
            await self._look(*self._random.choice(list(self._commits)))

    async def _look(self, group: str, log: str) -> bool:
        name = log.rpartition("-")[0]
        topic = OffsetFetchRequest.OffsetFetchRequestTopics(name=name, partition_indexes=[0])
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=[topic])
        floor, ceiling = self._commits[group, log]
        floor = min(floor, self._unanswered.get((group, log), floor))
        if self._replicas > 1 and not self._is_stopped:
            floor = -1  # a deposed coordinator may still return an older commit
        answer = await self._routes.ask(OffsetFetchRequest(groups=[asked]), FETCH_COMMIT)
        if answer is None or answer.groups[0].error_code or not answer.groups[0].topics:
            return False
        told = answer.groups[0].topics[0].partitions[0]
        if told.error_code == NO_ERROR:
            self._see(CommitFetched(group, log, told.committed_offset, floor, ceiling))
        return bool(told.error_code == NO_ERROR)
