"""Which configuration key sets each limit and each time of a node's replica of the metadata log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafkacore._fast.world.environment import Environment
from kafkacore.config import BrokerConfig
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft.core import RaftConfig
from kafkacore.raft.tail_log import TailLog
from kafkacore.raft.voters import ReplicaKey
from kafkacore.runtime.world import World
from kafkacore.server.metadata_replica import MetadataReplica, Quorum

SOUND = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
}


def replica_of(
    path: Path, log: TailLog, on_fault: Callable[[BaseException], None], **properties: str
) -> MetadataReplica:
    config = BrokerConfig(SOUND | {"log.dirs": str(path)} | properties)
    return MetadataReplica(
        config,
        "c",
        ReplicaKey(1),
        SimpleNamespace(log=log, state=None, persist=None),
        Quorum.configured(config),
        Environment(),
        world=World(),
        endpoints=(),
        on_fault=on_fault,
    )


def raft_config(path: Path, **properties: str) -> RaftConfig:
    faults: list[BaseException] = []
    replica = replica_of(path, TailLog(), faults.append, **properties)
    replica.close()
    assert faults == []
    return replica.raft._config


@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("controller.quorum.election.timeout.ms", "election_timeout_ms"),
        ("controller.quorum.election.backoff.max.ms", "election_backoff_max_ms"),
        ("controller.quorum.fetch.timeout.ms", "fetch_timeout_ms"),
        ("controller.quorum.request.timeout.ms", "request_timeout_ms"),
        ("controller.quorum.retry.backoff.ms", "retry_backoff_ms"),
        ("controller.quorum.fetch.max.bytes", "fetch_max_bytes"),
        ("controller.quorum.fetch.snapshot.max.bytes", "fetch_snapshot_max_bytes"),
        ("internal.metadata.max.batch.size.in.bytes", "max_batch_bytes"),
    ],
)
def test_each_timeout_key_limits_its_own_operation(tmp_path: Path, key: str, field: str) -> None:
    default, changed = raft_config(tmp_path), raft_config(tmp_path, **{key: "4321"})
    names = [name for name in RaftConfig._fields if getattr(default, name) != getattr(changed, name)]
    assert names == [field]
    assert getattr(changed, field) == 4321


def test_defaults_equal_the_defaults_in_the_core(tmp_path: Path) -> None:
    made = raft_config(tmp_path)
    plain = RaftConfig(1, Uuid(b"d" * 16), "c")
    # A Raft core without a driver appends each change immediately.
    assert (made.append_linger_ms, plain.append_linger_ms) == (25, 0)
    names = [name for name in RaftConfig._fields if name.endswith(("_ms", "_bytes")) and name != "append_linger_ms"]
    assert {name: getattr(made, name) for name in names} == {name: getattr(plain, name) for name in names}


def test_connections_are_closed_when_the_disk_of_the_log_fails_during_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FailedLog(TailLog):
        def flush(self) -> None:
            raise OSError("the disk is gone")

    async def run() -> None:
        replica = replica_of(tmp_path, FailedLog(), lambda error: None)
        await replica.start()
        closed: list[bool] = []

        async def close() -> None:
            closed.append(True)

        monkeypatch.setattr(replica.lanes, "close", close)
        with pytest.raises(OSError, match="the disk is gone"):
            await replica.stop()
        assert closed == [True]
        replica.close()

    asyncio.run(run())
