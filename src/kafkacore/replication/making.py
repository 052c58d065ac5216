"""Creates the fetchers of a broker. They run on processors (the broker's native I/O threads), or on the event loop of a
simulated cluster.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kafkacore._fast.follow.driver_handle import DriverHandle
from kafkacore._fast.follow.handle import FetcherHandle
from kafkacore._fast.log.replication_quota import ReplicationQuota
from kafkacore._fast.plane.plane import NativePlane
from kafkacore._fast.plane.processor import NativeProcessor
from kafkacore._fast.world.environment import Environment
from kafkacore.config import BrokerConfig
from kafkacore.network.client import ClientLimits, Connect, NodeClient
from kafkacore.replication.fetchers import Address, Fetchers, MakeFetcher
from kafkacore.replication.native_fetcher import NativeFetcher, WatchLink
from kafkacore.replication.remote_fetcher import RemoteFetcher

# If a broker starts to follow a partition while a Fetch waits at the leader, the partition must wait for the next
# Fetch. So a Fetch waits at most this long, even if replica.fetch.wait.max.ms allows more.
_MOST_WAIT_MS: Final = 100


class Threads(NamedTuple):
    """The processors (native I/O threads) of the broker's listeners, and the plane (the listeners with their
    connections) whose memory budget includes the responses to fetchers.
    """

    plane: NativePlane
    processors: Sequence[NativeProcessor]


def make_fetchers(
    config: BrokerConfig,
    environment: Environment,
    randomness: random.Random,
    connect: Connect | None,
    read_broker_epoch: Callable[[], int],
    read_threads: Callable[[], Threads] | None,
    watch_link: WatchLink | None = None,
    quota: ReplicationQuota | None = None,
    on_fault: Callable[[BaseException], None] = lambda error: None,
) -> Fetchers:
    """Returns the fetchers of a broker. `connect` makes connections as `loop.create_connection` does; if it is None,
    the running loop makes them. If `read_threads` is None, there are no processors, and the running loop drives the
    fetchers. `quota` limits the bytes of throttled partitions that fetchers read. `on_fault` is passed to the result.
    """
    limits = ClientLimits(
        request_timeout_ms=config.replica_socket_timeout_ms,
        connection_setup_timeout_ms=config.socket_connection_setup_timeout_ms,
    )
    fetch_limits = {
        "max_wait_ms": min(config.replica_fetch_wait_max_ms, _MOST_WAIT_MS),
        "min_bytes": config.replica_fetch_min_bytes,
        "response_max_bytes": config.replica_fetch_response_max_bytes,
        "max_bytes": config.replica_fetch_max_bytes,
        "backoff_ms": config.replica_fetch_backoff_ms,
    }

    def client_id(number: int) -> str:
        return f"broker-{config.node_id}-fetcher-{number}"

    def connected(number: int) -> Callable[[Address], NodeClient]:
        return lambda where: NodeClient(
            *where, client_id(number), limits=limits, randomness=randomness, connect=connect
        )

    def make_on_loop(source_id: int, number: int, address: Address | None) -> RemoteFetcher:
        return RemoteFetcher(
            source_id, number, FetcherHandle(environment, config.node_id, quota=quota, **fetch_limits), address,
            connected(number), read_broker_epoch, config.replica_fetch_backoff_ms,
        )  # fmt: skip

    made = 0

    def make_on_processor(source_id: int, number: int, address: Address | None) -> NativeFetcher:
        nonlocal made
        assert read_threads is not None
        threads = read_threads()
        processor = threads.processors[made % len(threads.processors)]
        made += 1
        native = DriverHandle(
            threads.plane, processor, config.node_id, client_id(number),
            timeout_ms=config.replica_socket_timeout_ms, quota=quota, **fetch_limits,
        )  # fmt: skip
        return NativeFetcher(
            source_id, number, native, address, connected(number), read_broker_epoch,
            config.replica_fetch_backoff_ms, watch_link,
        )  # fmt: skip

    make: MakeFetcher = make_on_loop if read_threads is None else make_on_processor
    return Fetchers(config.num_replica_fetchers, make, environment.monotonic_ns, on_fault)
