"""A node's replica of the metadata log: a controller's, which may vote and lead, or a broker's, which only follows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from kafkacore._fast.env import Environment
from kafkacore._fast.io import LogDirectory
from kafkacore._fast.priority import enter_thread
from kafkacore.config import BrokerConfig
from kafkacore.metadata.records import decode_batch
from kafkacore.network.client import ClientLimits, NodeClient
from kafkacore.protocol.messages import Message
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft.core import RaftConfig
from kafkacore.raft.driver import RaftDriver
from kafkacore.raft.file_log import FileLog
from kafkacore.raft.snapshotting import Contents, SnapshotLimits, Snapshotter
from kafkacore.raft.voters import Endpoints, ReplicaKey, Voter, VoterSet
from kafkacore.runtime.randomness import randomness
from kafkacore.storage import quorum_state
from kafkacore.storage.names import metadata_directory

THREADS: Final = 2  # one syncs the log, one writes votes and snapshots
IO_THREADS: Final = 2


class QuorumClients:
    """Connections to controllers by their address. Belongs to one loop."""

    def __init__(self, client_id: str, limits: ClientLimits) -> None:
        self._client_id = client_id
        self._limits = limits
        self._clients: dict[tuple[str, int], NodeClient] = {}

    async def send(self, host: str, port: int, request: Message) -> Any:
        """Raises OSError, TimeoutError, KafkaError, ProtocolError."""
        client = self._clients.get((host, port))
        if client is None:
            client = self._clients[host, port] = NodeClient(host, port, self._client_id, limits=self._limits)
        return await client.request(request)

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()


class MetadataReplica:
    """Made on a thread that may wait for the disk: it loads the log. Then it belongs to the loop it is started on.

    `endpoints` are this controller's own listeners; `on_fault` is told what this node cannot go on after.
    """

    def __init__(
        self,
        config: BrokerConfig,
        cluster_id: str,
        directory_id: Uuid,
        environment: Environment,
        *,
        endpoints: Endpoints,
        clean: bool,
        on_fault: Callable[[BaseException], None],
    ) -> None:
        self._config = config
        self._environment = environment
        self._executor = ThreadPoolExecutor(THREADS, "kc-raft", enter_thread, ("kc-raft", True))
        self._directory = LogDirectory(environment, config.metadata_log_dir, IO_THREADS, urgent=True)
        self._log = FileLog(
            self._directory,
            segment_bytes=config.metadata_log_segment_size_bytes,
            segment_ms=config.metadata_log_segment_ms,
            clean=clean,
        )
        self._snapshotter: Snapshotter | None = None
        listener = config.controller_listener_names[0]
        limits = ClientLimits(
            request_timeout_ms=config.controller_quorum_request_timeout_ms,
            connection_setup_timeout_ms=config.controller_quorum_request_timeout_ms,
        )
        self.clients = QuorumClients(f"node-{config.node_id}", limits)
        directory = metadata_directory(config.metadata_log_dir)
        self.raft = RaftDriver(
            RaftConfig(
                node_id=config.node_id,
                directory_id=directory_id,
                cluster_id=cluster_id,
                voters=_static_voters(config, listener),
                bootstrap=tuple((each.host, each.port) for each in config.controller_quorum_bootstrap_servers),
                can_vote="controller" in config.process_roles,
                listener=listener,
                endpoints=endpoints,
                election_timeout_ms=config.controller_quorum_election_timeout_ms,
                election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
                fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
                request_timeout_ms=config.controller_quorum_request_timeout_ms,
                retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
                fetch_max_bytes=config.controller_quorum_fetch_max_bytes,
                fetch_snapshot_max_bytes=config.controller_quorum_fetch_snapshot_max_bytes,
                max_batch_bytes=config.internal_metadata_max_batch_size_in_bytes,
            ),
            self._log,
            quorum_state.read(directory),
            decode=decode_batch,
            persist=functools.partial(quorum_state.write, directory),
            network=self.clients,
            executor=self._executor,
            random=randomness(),
            now_ms=self.now_ms,
            wall_ms=environment.wall_ms,
            on_fault=on_fault,
        )

    def now_ms(self) -> int:
        return self._environment.monotonic_ns() // 1_000_000

    def make_snapshots(self, contents: Callable[[], Contents]) -> None:
        """Of what `contents` gives, after the listeners that were added before."""
        limits = SnapshotLimits(
            bytes_between=self._config.metadata_log_max_record_bytes_between_snapshots,
            interval_ms=self._config.metadata_log_max_snapshot_interval_ms,
            retention_bytes=self._config.metadata_max_retention_bytes,
            retention_ms=self._config.metadata_max_retention_ms,
        )
        self._snapshotter = Snapshotter(
            self._log, limits, contents, self.raft.write_snapshot, self._environment.wall_ms
        )
        self.raft.add_listener(self._snapshotter)

    async def start(self) -> None:
        """Takes part in the quorum from now on."""
        self.raft.start()

    async def stop(self) -> None:
        if self._snapshotter is not None:
            await self._snapshotter.close()
        await self.raft.stop()
        await self.clients.close()

    def close(self) -> None:
        """After `stop`, on a thread that may wait."""
        self._executor.shutdown()
        self._log.close()
        self._directory.close()


def _static_voters(config: BrokerConfig, listener: str) -> VoterSet:
    """controller.quorum.voters; what the log says goes before it (KIP-853)."""
    return VoterSet(
        Voter(ReplicaKey(voter.node_id), ((listener, voter.address.host, voter.address.port),))
        for voter in config.controller_quorum_voters
    )
