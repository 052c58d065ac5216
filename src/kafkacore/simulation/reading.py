"""Readers whose actions the seed decides. A reader reads on as records arrive, reads at random offsets, and looks for
the ends of logs. It has its own connections, so it does not wait for the writes of its client."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import FetchRequest, ListOffsetsRequest
from kafkacore.simulation.actor import Actor
from kafkacore.simulation.checkers import batches
from kafkacore.simulation.checkers.observations import LatestListed, LogRead, LogSurvived, RecordRead, ValuesRead
from kafkacore.simulation.cluster import SimulatedNodes
from kafkacore.simulation.judge import Judge
from kafkacore.simulation.routes import Routes, drop_topic

# The newest versions in which requests contain the topic's name instead of its id.
FETCH, LIST_OFFSETS = 12, 7
LATEST: Final = -1
NO_ERROR: Final = 0
WAIT_MS: Final = 500  # how long the leader may wait for the next records
PATIENCE: Final = 50  # how many times `read_everything` fetches again after an empty answer
Partition = tuple[str, int]


class Written:
    """The records of a client, as far as the client knows. `lossy` holds the topics that may lose records."""

    def __init__(self, lossy: dict[str, None]) -> None:
        self.lossy = lossy
        self.ends: dict[Partition, int] = {}  # the offset after the last acknowledged record
        self.floors: dict[Partition, int] = {}  # the offset below which records may have been deleted

    def forget(self, name: str) -> None:
        drop_topic(name, self.ends, self.floors)


class SeededReader(Actor):
    """Reads the topics of one client."""

    def __init__(self, cluster: SimulatedNodes, judge: Judge, name: str, random: Random, written: Written) -> None:
        super().__init__(cluster, name)
        self._cluster, self._judge, self._random, self._written = cluster, judge, random, written
        self._routes = Routes(cluster, name, random)
        self._positions: dict[Partition, int] = {}

    def begin_reading(self) -> asyncio.Task[None]:
        """Starts to read everything back. Call it after `stop`."""
        return self._client.start(self.read_everything())

    async def _work(self) -> None:
        while not self._is_stopped:
            await asyncio.sleep(self._random.choice((0.001, 0.05, 0.3)))
            await self.act()

    async def act(self) -> None:
        if self._written.ends:
            what = self._random.choices((self.read_on, self.read, self.list_latest), (3, 2, 3))[0]
            await what(*self._random.choice(list(self._written.ends)))

    async def read_on(self, name: str, index: int) -> None:
        """Reads on where this reader's last read ended. Waits for new records, as a consumer does."""
        end = self._written.ends.get((name, index), 0)
        at = self._positions.get((name, index), end)
        found = await self.fetch(name, index, at, WAIT_MS)
        if found is not None:
            self._see_records(name, index, found)
            self._positions[name, index] = found[-1][0] + 1 if found else at

    async def read(self, name: str, index: int) -> None:
        floor, end = self._written.floors.get((name, index), 0), self._written.ends.get((name, index), 0)
        if floor < end:
            self._see_records(name, index, await self.fetch(name, index, self._random.randint(floor, end - 1)) or [])

    def _see_records(self, name: str, index: int, found: list[tuple[int, bytes]]) -> None:
        log = f"{name}-{index}"
        if name in self._written.lossy:
            self._judge.see(ValuesRead(log, tuple(value for _, value in found)))
        elif found and (name, index) in self._written.ends:  # the client may have deleted the topic meanwhile
            # The client may have got no answer to the write of these records, and so may not know that they exist.
            ends = self._written.ends
            ends[name, index] = max(ends[name, index], found[-1][0] + 1)
        for offset, value in found:
            self._judge.see(RecordRead(log, offset, value))

    async def list_latest(self, name: str, index: int) -> None:
        leader, epoch = await self._routes.leadership(name, index)
        if epoch < 0:
            return
        partition = ListOffsetsRequest.ListOffsetsPartition(
            partition_index=index, current_leader_epoch=epoch, timestamp=LATEST
        )
        topic = ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[partition])
        sent_ns = self._cluster.schedule.now_ns
        answer = await self._routes.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]), LIST_OFFSETS, leader)
        if answer is not None:
            told = answer.topics[0].partitions[0]
            if told.error_code == NO_ERROR:
                self._judge.see(LatestListed(f"{name}-{index}", epoch, told.offset, sent_ns))
                return
        self._routes.doubt(name, index)

    async def fetch(self, name: str, index: int, offset: int, wait_ms: int = 0) -> list[tuple[int, bytes]] | None:
        """Returns the records from `offset` up to the high watermark or the end of the response. Returns None if no
        response comes."""
        partition = FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        topic = FetchRequest.FetchTopic(topic=name, partitions=[partition])
        request = FetchRequest(max_wait_ms=wait_ms, min_bytes=1 if wait_ms else 0, max_bytes=1 << 24, topics=[topic])
        answer = await self._routes.ask(request, FETCH, await self._routes.leader_of(name, index))
        if answer is None or answer.error_code or not answer.responses:
            return None
        told = answer.responses[0].partitions[0]
        if told.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # The topic has lost records. The next read begins with the records that remain.
            floor = self._written.floors.get((name, index), 0)
            self._positions[name, index] = floor if offset != floor else 0
        if told.error_code != NO_ERROR:
            self._routes.doubt(name, index)
            return None
        is_whole = True
        try:
            found = [each for each in batches.values(bytes(told.records or b"")) if each[0] >= offset]
        except IndexError:
            found, is_whole = [], False
        log = f"{name}-{index}"
        self._judge.see(LogRead(log, offset, tuple(at for at, _ in found), told.high_watermark, is_whole))
        return [(at, value or b"") for at, value in found]

    async def read_everything(self) -> None:
        """Reads every partition to which the client wrote. Retries each read until it succeeds."""
        for (name, index), end in self._written.ends.items():
            if name in self._written.lossy:
                continue
            records: dict[int, bytes] = {}
            at = self._written.floors.get((name, index), 0)
            patience = PATIENCE
            while at < end and patience:
                found = await self.fetch(name, index, at)
                if found is None:
                    await asyncio.sleep(0.1)
                    continue
                if not found:
                    patience -= 1  # the high watermark of a new leader may still rise
                    await asyncio.sleep(0.1)
                    continue
                records.update(found)
                at = found[-1][0] + 1
            self._judge.see(LogSurvived(f"{name}-{index}", records))
