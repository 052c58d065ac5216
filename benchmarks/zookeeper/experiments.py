"""The six experiments of Appendix A, for our client and for kazoo. Each reads or writes every znode of a list once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import uvloop

from kafkacore.zookeeper import paths
from kafkacore.zookeeper.client import ClientSettings, ZooKeeperClient
from kafkacore.zookeeper.common_writes import ensure_paths
from kafkacore.zookeeper.fenced import MAX_MULTI_BYTES, cut, write_fenced
from kafkacore.zookeeper.operations import Code, Create, GetData, Multi, Operation, SetData

BATCHED = ("multi-set-data-sync", "multi-check-and-set-data-async")
EXPERIMENTS = ("set-data-sync", "get-data-sync", BATCHED[0], "set-data-async", "get-data-async", BATCHED[1])
PARENT = "/bench"
WINDOW = 50_000  # operations that a caller of our client starts at a time; the client itself bounds the bytes


def znode(number: int) -> str:
    return f"{PARENT}/{number:07d}"


class Failed(Exception):
    """The client could not finish the experiment. The message is the error that it reported."""


class Ours:
    name = "kafkacore"

    def __init__(self, connect: str) -> None:
        # The session runs on a separate thread, so that it stays alive while the other client has its turn.
        self.loop = uvloop.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.client = ZooKeeperClient(connect, ClientSettings(session_timeout_ms=30_000))
        self.wait(self.client.start(30_000))

    def wait(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def prepare(self, count: int) -> None:
        async def make() -> None:
            await ensure_paths(self.client, [PARENT])
            await self.client.submit([Create(paths.CONTROLLER_EPOCH, b"1")])
            for start in range(0, count, WINDOW):
                await self.client.submit([Create(znode(n)) for n in range(start, min(start + WINDOW, count))])

        self.wait(make())

    def run(self, experiment: str, count: int, data: bytes, batch: int) -> None:
        steps: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "set-data-sync": lambda: self.one_by_one([SetData(znode(n), data) for n in range(count)]),
            "get-data-sync": lambda: self.one_by_one([GetData(znode(n)) for n in range(count)]),
            "set-data-async": lambda: self.pipelined(count, lambda n: SetData(znode(n), data)),
            "get-data-async": lambda: self.pipelined(count, lambda n: GetData(znode(n))),
            "multi-set-data-sync": lambda: self.multis(count, data, batch),
            "multi-check-and-set-data-async": lambda: self.fenced(count, data, batch),
        }
        self.wait(steps[experiment]())

    async def one_by_one(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            check(await self.client.submit([operation]))

    async def pipelined(self, count: int, make: Callable[[int], Operation]) -> None:
        for start in range(0, count, WINDOW):
            check(await self.client.submit([make(n) for n in range(start, min(start + WINDOW, count))]))

    async def multis(self, count: int, data: bytes, batch: int) -> None:
        writes = [SetData(znode(n), data) for n in range(count)]
        for run in cut(writes, batch, MAX_MULTI_BYTES):
            check(await self.client.submit([Multi([writes[place] for place in run])]))

    async def fenced(self, count: int, data: bytes, batch: int) -> None:
        for start in range(0, count, WINDOW):
            writes = [SetData(znode(n), data) for n in range(start, min(start + WINDOW, count))]
            check(await write_fenced(self.client, writes, 0, max_operations=batch))

    def close(self) -> None:
        self.wait(self.client.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()


def check(results: Sequence) -> None:
    failed = next((each.code for each in results if each.code is not Code.OK), None)
    if failed is not None:
        raise Failed(failed.name)


class Kazoo:
    name = "kazoo"

    def __init__(self, connect: str) -> None:
        from kazoo.client import KazooClient

        self.client = KazooClient(connect, timeout=30)
        self.client.start(timeout=30)

    def prepare(self, count: int) -> None:
        """Does nothing, because our client has already made the znodes."""

    def run(self, experiment: str, count: int, data: bytes, batch: int) -> None:
        from kazoo.exceptions import KazooException

        try:
            getattr(self, experiment.replace("-", "_"))(count, data, batch)
        except KazooException as error:
            raise Failed(type(error).__name__) from error

    def set_data_sync(self, count: int, data: bytes, _: int) -> None:
        for number in range(count):
            self.client.set(znode(number), data)

    def get_data_sync(self, count: int, _: bytes, __: int) -> None:
        for number in range(count):
            self.client.get(znode(number))

    def set_data_async(self, count: int, data: bytes, _: int) -> None:
        for asked in [self.client.set_async(znode(number), data) for number in range(count)]:
            asked.get()

    def get_data_async(self, count: int, _: bytes, __: int) -> None:
        for asked in [self.client.get_async(znode(number)) for number in range(count)]:
            asked.get()

    def multi_set_data_sync(self, count: int, data: bytes, batch: int) -> None:
        for start in range(0, count, batch):
            self.judge(self.transaction(start, min(start + batch, count), data, fenced=False).commit())

    def multi_check_and_set_data_async(self, count: int, data: bytes, batch: int) -> None:
        asked = [
            self.transaction(start, min(start + batch, count), data, fenced=True).commit_async()
            for start in range(0, count, batch)
        ]
        for each in asked:
            self.judge(each.get())

    def transaction(self, start: int, end: int, data: bytes, *, fenced: bool):
        transaction = self.client.transaction()
        if fenced:
            transaction.check(paths.CONTROLLER_EPOCH, 0)
        for number in range(start, end):
            transaction.set_data(znode(number), data)
        return transaction

    def judge(self, results: Sequence) -> None:
        for each in results:
            if isinstance(each, Exception):
                raise Failed(type(each).__name__)

    def close(self) -> None:
        self.client.stop()
        self.client.close()


CLIENTS = {client.name: client for client in (Ours, Kazoo)}
