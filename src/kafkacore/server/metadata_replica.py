"""A node's replica of the metadata log. A controller's replica can vote and lead; a broker's replica only follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from kafkacore._fast.world.environment import Environment
from kafkacore.config import BrokerConfig
from kafkacore.metadata.records import decode_batch
from kafkacore.raft.core import RaftConfig
from kafkacore.raft.driver import RaftDriver
from kafkacore.raft.snapshotting import CleanableLog, Contents, SnapshotLimits, Snapshotter
from kafkacore.raft.voters import Endpoints, ReplicaKey, Voter, VoterSet
from kafkacore.runtime.world import World
from kafkacore.server.lanes import RAFT, controller_lanes
from kafkacore.server.metadata_store import MetadataOnDisk
from kafkacore.server.own_cluster import OwnCluster
from kafkacore.storage import meta_properties

THREADS: Final = 2  # one thread syncs the log, the other writes votes and snapshots


class Quorum(NamedTuple):
    """The addresses of the controllers from the configuration. Addresses in the metadata log take precedence
    (KIP-853)."""

    voters: VoterSet
    bootstrap: tuple[tuple[str, int], ...]

    @classmethod
    def configured(cls, config: BrokerConfig) -> Quorum:
        """Returns the addresses in controller.quorum.voters and controller.quorum.bootstrap.servers."""
        listener = config.controller_listener_names[0]
        return cls(
            VoterSet(
                Voter(ReplicaKey(voter.node_id), ((listener, voter.address.host, voter.address.port),))
                for voter in config.controller_quorum_voters
            ),
            tuple((each.host, each.port) for each in config.controller_quorum_bootstrap_servers),
        )


class MetadataReplica:
    """A replica. Create it on any thread. After that, it belongs to the loop that starts it.

    `me` identifies the replica to other nodes. `endpoints` are this controller's own listeners; a replica that only
    follows has no endpoints. `on_fault` is called with an error that is fatal for this node.
    """

    def __init__(
        self,
        config: BrokerConfig,
        cluster_id: str,
        me: ReplicaKey,
        store: MetadataOnDisk,
        quorum: Quorum,
        environment: Environment,
        *,
        world: World,
        endpoints: Endpoints,
        on_fault: Callable[[BaseException], None],
    ) -> None:
        self._config = config
        self._environment = environment
        self._executor = world.executor(THREADS, "kc-raft")
        self._snapshotter: Snapshotter | None = None
        listener = config.controller_listener_names[0]
        self.lanes = controller_lanes(config, world.random, world.connect)
        self._me, self._bootstrap = me, frozenset(quorum.bootstrap)
        where = meta_properties.path_in(config.metadata_log_dir)
        self.raft = RaftDriver(
            RaftConfig(
                node_id=me.replica_id,
                directory_id=me.directory_id,
                cluster_id=cluster_id,
                voters=quorum.voters,
                bootstrap=quorum.bootstrap,
                can_vote=bool(endpoints),
                auto_join=config.controller_quorum_auto_join_enable,
                listener=listener,
                endpoints=endpoints,
                election_timeout_ms=config.controller_quorum_election_timeout_ms,
                election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
                append_linger_ms=config.controller_quorum_append_linger_ms,
                fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
                request_timeout_ms=config.controller_quorum_request_timeout_ms,
                retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
                fetch_max_bytes=config.controller_quorum_fetch_max_bytes,
                fetch_snapshot_max_bytes=config.controller_quorum_fetch_snapshot_max_bytes,
                checkpoint_interval_ms=config.log_flush_offset_checkpoint_interval_ms,
                max_batch_bytes=config.internal_metadata_max_batch_size_in_bytes,
            ),
            store.log,
            store.state,
            decode=decode_batch,
            persist=store.persist,
            network=OwnCluster(self.lanes[RAFT], cluster_id, where, self._other_controllers, on_fault),
            executor=self._executor,
            random=world.random,
            now_ms=self.now_ms,
            wall_ms=environment.wall_ms,
            on_fault=on_fault,
        )

    def _other_controllers(self) -> set[tuple[str, int]]:
        """Returns the addresses of the other voters, or of the bootstrap servers while no voter is known. Call this on
        the loop, after the start."""
        voters = self.raft.raft.voters.latest.voters()
        if not voters:
            return set(self._bootstrap)
        listener = self._config.controller_listener_names[0]
        found = {voter.endpoint(listener) for voter in voters if voter.key.replica_id != self._me.replica_id}
        return {each for each in found if each is not None}

    def wall_ms(self) -> int:
        return self._environment.wall_ms()

    def now_ms(self) -> int:
        return self._environment.monotonic_ns() // 1_000_000

    def make_snapshots(self, log: CleanableLog, contents: Callable[[], Contents | None]) -> None:
        """Starts to write snapshots of the state that `contents` returns. Listeners that were added earlier get each
        batch before the snapshotter does. `log` is the log of the replica's store."""
        limits = SnapshotLimits(
            bytes_between=self._config.metadata_log_max_record_bytes_between_snapshots,
            interval_ms=self._config.metadata_log_max_snapshot_interval_ms,
            retention_bytes=self._config.metadata_max_retention_bytes,
            retention_ms=self._config.metadata_max_retention_ms,
        )
        self._snapshotter = Snapshotter(
            log,
            limits,
            contents,
            self.raft.write_snapshot,
            self.raft.change_log,
            self.now_ms,
            self._environment.wall_ms,
        )
        self.raft.add_listener(self._snapshotter)

    async def start(self) -> None:
        """Starts to take part in the quorum."""
        await self.raft.start()

    async def stop(self) -> None:
        if self._snapshotter is not None:
            await self._snapshotter.close()
        try:
            await self.raft.stop()
        finally:  # the disk of the metadata log may have failed
            await self.lanes.close()

    def close(self) -> None:
        """Closes the replica. Call this after `stop`, on a thread that may block."""
        self._executor.shutdown()
