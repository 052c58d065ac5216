"""`Broker`: a Kafka node inside a test's process."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import errno
import gc
import os
import time
import warnings
from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any, Final, Self, TypeVar

from kafkacore._fast.world.fault_disk import FAULT_KINDS, FaultDisk
from kafkacore.config import BrokerConfig
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.runtime.temporary_directory import TemporaryDirectory
from kafkacore.runtime.world import World
from kafkacore.server.node import Node
from kafkacore.testing.client import Client
from kafkacore.testing.clock import BrokerClock
from kafkacore.testing.faults import Fault, RequestFault
from kafkacore.testing.groups import Groups
from kafkacore.testing.interception import Interception, gate
from kafkacore.testing.logs import Log, LogRecord
from kafkacore.testing.lookup import Topics, UnknownName, api_named, as_text, error_named, unknown, with_partitions
from kafkacore.testing.recorder import Requests
from kafkacore.tools import dev

T = TypeVar("T")

# Files in this directory use no disk. On a machine without this directory, the files are in the usual temporary
# directory.
MEMORY_DIRECTORY: Final = "/dev/shm"  # noqa: S108 - directories with random names are made in it
DIRECTORY_PREFIX: Final = "kafkacore-testing-"
_CALL_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.002
# The garbage collector's generation that contains the objects of one test's broker. Collecting it takes half a
# millisecond.
_YOUNG: Final = 1
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
# These values suit tests better than Kafka's defaults. A test that wants a default sets the key.
CONFIGS: Final = MappingProxyType(
    {
        "metrics.port": "-1",
        # With 0, the first member of a group does not wait for other members. Apache Kafka's own tests also use 0.
        "group.initial.rebalance.delay.ms": "0",
        # When a test moves the clock by an hour, the clients must not count as idle for an hour.
        "connections.max.idle.ms": "2147483647",
        "num.network.threads": "1",
        "num.io.threads": "2",
    }
)


# Brokers that are still open. Their files are removed at the end of the process.
_open: Final[set[Broker]] = set()


class BrokerClosed(RuntimeError):
    """The broker is closed or stopped. A test must create another broker, or start this one."""


class Broker:
    """A broker that listens on a free port of 127.0.0.1 as soon as it is constructed. `close` ends all its threads,
    closes its sockets and removes its temporary files.

    The broker creates `topics`, which is a list of names, or a mapping from each name to its number of partitions.
    `configs` sets keys of server.properties. `time` is "running" or "frozen". A frozen clock starts at `start_ms` (by
    default the current time). With `record`, the broker records the requests of clients from the start (see
    `requests`). The broker keeps its files in `directory`, and `close` leaves them there. Without `directory`, the
    broker uses a temporary directory, in memory if the machine has /dev/shm.

    Raises OSError, and ConfigError for a value or topic that Kafka refuses. Warns about keys that have no effect.
    """

    def __init__(
        self,
        *,
        topics: Topics = (),
        configs: Mapping[str, object] = _NOTHING,
        time: str = "running",
        start_ms: int | None = None,
        record: bool = False,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        if time not in {"running", "frozen"}:
            raise ValueError(f"`time` must be 'running' or 'frozen', not {time!r}")
        self.clock = BrokerClock(frozen=time == "frozen", start_ms=_now_ms() if start_ms is None else start_ms)
        self.requests = Requests(self._intercept)
        self._disk = FaultDisk()
        self._faults: list[RequestFault] = []
        self._disk_faults: list[DiskFault] = []
        self._client: Client | None = None
        self._port = 0
        self._overrides = CONFIGS | {key: as_text(value) for key, value in configs.items()}
        self._closing = contextlib.ExitStack()
        self.directory = self._make_directory(directory)
        self._node: Node | None = None
        _open.add(self)
        try:
            self.start()
            for name in configs:
                self._warn_of(name)
            if record:
                self.requests.start()
            self.create_topics(topics)
        except BaseException:
            self.close()
            raise

    def _make_directory(self, directory: str | os.PathLike[str] | None) -> str:
        if directory is not None:
            os.makedirs(directory, exist_ok=True)
            return os.path.abspath(directory)
        in_memory = os.access(MEMORY_DIRECTORY, os.W_OK | os.X_OK)
        temporary = TemporaryDirectory(DIRECTORY_PREFIX, MEMORY_DIRECTORY if in_memory else None)
        self._closing.callback(temporary.close)
        return temporary.logs

    # --- life ---

    def start(self) -> None:
        """Starts the stopped broker again, on the same port, with the same files."""
        if self._node is not None:
            raise RuntimeError("this broker is already running")
        config = self._config()
        dev.prepare(config)
        node = Node(config, world=World(self._disk.environment(self.clock.manual)))
        node.start()
        self._node = node
        self._port = int((node.bootstrap or "").rpartition(":")[2])
        self.clock.attach(node)
        self._intercept()

    def stop(self) -> None:
        """Shuts the broker down cleanly. `start` starts it again. A stop ends the faults of the disk, but not the
        faults of requests.

        Idempotent.
        """
        node, self._node = self._node, None
        if node is None:
            return
        try:
            self._leave(node)
        finally:  # after any error, even an interrupt, because nothing else could stop the node later
            try:
                node.stop()
            finally:
                for fault in self._disk_faults[:]:
                    fault.end()

    def _leave(self, node: Node) -> None:
        """Disconnects the parts of this broker from the node."""
        client, self._client = self._client, None
        self.clock.attach(None)
        if client is not None:
            node.broker.plane.loop.run(client.close(), _CALL_SECONDS)

    def restart(self) -> None:
        """Stops and starts the broker. Clients lose their connections, and can connect again at the same address."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stops the broker and removes its files. Idempotent."""
        try:
            self.stop()
        finally:
            self._closing.close()
            _open.discard(self)  # if the process ends before this line, it still removes the broker's files
            # The parts of a node refer to each other. This collection immediately frees their eventfds, and the memory
            # of their deleted files.
            gc.collect(_YOUNG)

    async def aclose(self) -> None:
        """Runs `close` on another thread, so that the caller's loop can continue."""
        await asyncio.get_running_loop().run_in_executor(None, self.close)

    def reset(self) -> None:
        """Ends every fault and drops the recorded requests, so that the next test starts without them."""
        for fault in [*self._faults, *self._disk_faults]:
            fault.end()
        self.requests.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _config(self) -> BrokerConfig:
        overrides = [f"{key}={value}" for key, value in self._overrides.items()]
        return dev.configuration(self.directory, self._port, overrides)

    def _warn_of(self, name: str) -> None:
        """Warns about an unknown key, as Kafka does, and about a key that has no effect here."""
        config = self.node.config
        found = [unknown("key", name, config.keys.names())] if config.key(name) is None else config.note(name)
        for note in found:
            warnings.warn(note, stacklevel=3)

    # --- address and topics ---

    @property
    def bootstrap(self) -> str:
        """`host:port`, for a client's bootstrap.servers."""
        return f"{dev.HOST}:{self._port}"

    @property
    def node_id(self) -> int:
        return dev.NODE_ID

    @property
    def node(self) -> Node:
        """The node itself. Raises BrokerClosed."""
        if self._node is None:
            raise BrokerClosed(f"the broker of {self.bootstrap} is not running: it was stopped or closed")
        return self._node

    @property
    def failure(self) -> BaseException | None:
        """The error that stopped the node, for example the failure of its last disk."""
        return self.node.fault

    @property
    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic, by topic name."""
        return {topic.name: len(topic.partition_rows) for topic in self.node.broker.context.image.topics()}

    def create_topic(self, name: str, partitions: int = 1, *, configs: Mapping[str, object] = _NOTHING) -> str:
        """Creates a topic, waits until the broker serves it, and returns its name. Raises KafkaError."""
        told = self.node.create_topics([(name, partitions)], {key: as_text(value) for key, value in configs.items()})
        for _, error, message in told:
            if error:
                raise error_for(ErrorCode(error), message)
        return name

    def create_topics(self, topics: Topics) -> None:
        """Creates several topics. `topics` is a list of names, or a mapping from each name to its number of partitions.
        Raises KafkaError for the first topic that the broker refuses."""
        wanted = with_partitions(topics)
        if not wanted:
            return
        for name, error, message in self.node.create_topics(wanted):
            if error:
                raise error_for(ErrorCode(error), f"{name}: {message or ErrorCode(error).message}")

    def log(self, topic: str, partition: int = 0) -> Log:
        """Returns the log of a partition. Raises UnknownName if the partition does not exist."""
        handle = self.node.broker.replicas.by_name(topic, partition)
        if handle is None:
            if topic in self.topics:
                raise UnknownName(f"{topic} has partitions 0 to {self.topics[topic] - 1}, not {partition}")
            raise UnknownName(unknown("topic", topic, self.topics))
        return Log(handle)

    @property
    def groups(self) -> Groups:
        """The consumer groups by their id, as their coordinator sees them."""
        return Groups(self.node)

    # --- a small client ---

    def produce(
        self,
        topic: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        partition: int = 0,
        headers: Mapping[str, bytes | str | None] | None = None,
        timestamp_ms: int | None = None,
    ) -> int:
        """Writes one record over the wire with acks=all, and returns its offset. Raises KafkaError, ConnectionError."""
        at_ms = self.clock.now_ms if timestamp_ms is None else timestamp_ms
        client = self._own_client()
        return self._run(
            client.produce(topic, value, key=key, partition=partition, headers=headers, timestamp_ms=at_ms)
        )

    def consume(
        self, topic: str, count: int = 1, *, partition: int = 0, offset: int = 0, timeout_seconds: float = 5.0
    ) -> list[LogRecord]:
        """Reads `count` records over the wire. Waits for records that do not exist yet. Raises TimeoutError if fewer
        records arrive in time, and KafkaError, ConnectionError."""
        work = self._own_client().consume(topic, partition, offset, count, timeout_seconds)
        return self._run(work, timeout_seconds + _CALL_SECONDS)

    def _own_client(self) -> Client:
        if self._client is None:
            self._client = Client.of(dev.HOST, self._port)
        return self._client

    def _run(self, coroutine: Coroutine[Any, Any, T], limit_seconds: float = _CALL_SECONDS) -> T:
        if self._node is None:
            coroutine.close()
        return self.node.broker.plane.loop.run(coroutine, limit_seconds)

    # --- faults ---

    def refuse(
        self,
        api: str | int,
        *,
        error: str | int,
        times: int | None = None,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Answers requests for `api` with `error` (Kafka's name) instead of handling them. With `topic`, refuses only
        that topic. The fault ends after `times` requests, or when the test ends it. Raises UnknownName."""
        code = error_named(error)
        what = f"refuse {api_named(api).message} with {code.name}"
        return self._order(api, what, error=code, times=times, topic=topic, client_id=client_id)

    def delay(
        self,
        api: str | int,
        *,
        seconds: float,
        times: int | None = None,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Delays requests for `api` before the broker handles them. The broker's clock measures the delay. Raises
        UnknownName."""
        if not seconds > 0:
            raise ValueError(f"`seconds` must be greater than 0, not {seconds}")
        what = f"delay {api_named(api).message} by {seconds:g} s"
        return self._order(api, what, waits_seconds=seconds, times=times, topic=topic, client_id=client_id)

    def drop(
        self,
        api: str | int,
        *,
        when: str = "before",
        times: int | None = None,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Closes the connection of a request for `api`, "before" or "after" the broker handles the request. Raises
        UnknownName."""
        if when not in {"before", "after"}:
            raise ValueError(f"`when` must be 'before' or 'after', not {when!r}")
        what = f"drop {api_named(api).message} {when} its work"
        return self._order(api, what, drops=when, times=times, topic=topic, client_id=client_id)

    def tear(
        self,
        api: str | int,
        *,
        bytes: int,  # noqa: A002 - what a test says
        times: int | None = None,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Handles requests for `api`, but sends only the first `bytes` of each response, and then closes the
        connection. The first four bytes of a response are its size. Raises UnknownName."""
        if bytes < 0:
            raise ValueError(f"`bytes` must be 0 or more, not {bytes}")
        what = f"tear {api_named(api).message} after {bytes} bytes"
        return self._order(api, what, torn_bytes=bytes, times=times, topic=topic, client_id=client_id)

    def fill_disk(self, *, free_bytes: int = 0) -> Fault:
        """Lets the disk of the logs accept `free_bytes` more bytes. After that, writes fail with ENOSPC. As in Apache
        Kafka, a directory with a failed write stays offline until a restart, even if the disk has space again."""
        if free_bytes < 0:
            raise ValueError(f"`free_bytes` must be 0 or more, not {free_bytes}")
        return self._order_disk(f"fill the disk up to {free_bytes} free bytes", (), free_bytes)

    def fail_disk(self, *operations: str) -> Fault:
        """Makes disk operations of the logs fail with EIO: all operations, or only the named kinds (read, write, sync,
        names). A directory in which an operation has failed stays offline until a restart. Raises ValueError."""
        for each in operations:
            if each not in FAULT_KINDS:
                raise ValueError(unknown("operation of a disk", each, FAULT_KINDS))
        return self._order_disk(f"fail to {' and '.join(operations or FAULT_KINDS)}", operations or FAULT_KINDS, None)

    def faults(self) -> list[Fault]:
        """The faults that have not ended."""
        return [each for each in [*self._faults, *self._disk_faults] if not each.is_over]

    def _order(self, api: str | int, what: str, **how: Any) -> Fault:
        fault = RequestFault(what, api_named(api), on_end=self._ended, **how)
        _ = self.node  # raises BrokerClosed, because a closed broker has no faults
        self._faults = [*(each for each in self._faults if not each.is_over), fault]
        self._intercept()
        return fault

    def _ended(self, fault: Fault) -> None:
        self._faults = [each for each in self._faults if each is not fault]
        if self._node is not None and isinstance(fault, RequestFault):
            self._run(_let_go(fault))
            self._intercept()

    def _order_disk(self, what: str, kinds: tuple[str, ...], free_bytes: int | None) -> Fault:
        _ = self.node
        fault = DiskFault(what, self._disk, kinds, self._disk_ended)
        self._disk_faults.append(fault)
        if free_bytes is not None:
            self._disk.limit(free_bytes)
        for kind in kinds:
            self._disk.fail(kind, errno.EIO)
        return fault

    def _disk_ended(self, fault: Fault) -> None:
        """Removes the fault's effects from the disk, except those that another fault also has."""
        self._disk_faults = [each for each in self._disk_faults if each is not fault]
        for kind in FAULT_KINDS:
            self._disk.fail(kind, errno.EIO if any(kind in each.kinds for each in self._disk_faults) else 0)
        if all(each.kinds for each in self._disk_faults):
            self._disk.limit(None)

    def _intercept(self) -> None:
        """Intercepts requests while a fault or a recording needs this."""
        if self._node is None:
            return
        faults, broker = self._faults, self.node.broker
        wanted = bool(faults) or self.requests.is_recording

        async def publish() -> None:
            hand = Interception(broker, self.requests, faults)
            broker.intercept(hand.around if wanted else None, gate(faults, all_of_it=self.requests.is_recording))

        self._run(publish())

    def __repr__(self) -> str:
        state = self.bootstrap if self._node is not None else "closed"
        return f"<Broker {state}>"


class DiskFault(Fault):
    """A fault of the disk. Its hits are the failed operations. Without `kinds`, the fault is a full disk."""

    def __init__(self, what: str, disk: FaultDisk, kinds: tuple[str, ...], on_end: Callable[[Fault], None]) -> None:
        super().__init__(what, None, on_end=on_end)
        self.kinds = kinds
        self._disk = disk
        self._before = disk.hits

    @property
    def hits(self) -> int:
        return self._disk.hits - self._before

    def wait_for_hits(self, count: int = 1, timeout_seconds: float = 5.0) -> None:
        until = time.monotonic() + timeout_seconds
        while self.hits < count:
            if time.monotonic() > until:
                raise TimeoutError(f"{self!r}: did not happen {count} times within {timeout_seconds:g} s")
            time.sleep(_LOOK_SECONDS)  # native code counts the hits but does not notify


async def _let_go(fault: RequestFault) -> None:
    """Wakes the requests that wait because of this fault. Runs on the loop."""
    for end in fault.waiting[:]:
        end()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@atexit.register
def _tidy_up() -> None:
    """Removes the files of open brokers. The process is ending, so it cannot start threads for a clean stop."""
    for broker in tuple(_open):
        broker._closing.close()
