"""Configured limits of the metadata log: the bytes of a Fetch, the bytes of a batch, and the age of a segment."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment
from kafkacore.protocol.messages import FetchResponse, Message
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft import messages
from kafkacore.raft.control import data_batch
from kafkacore.raft.core import Raft, RaftConfig, Send
from kafkacore.raft.file_log import FileLog
from kafkacore.raft.log import MemoryLog
from kafkacore.raft.voters import ReplicaKey, Voter, VoterSet
from metadata_files import append

VOTERS = VoterSet([Voter(ReplicaKey(1), (("CONTROLLER", "h", 9093),))])
HOUR_MS = 3_600_000


def replica(node_id: int, **values: Any) -> Raft:
    config = RaftConfig(node_id, Uuid(b"d" * 16), "c", voters=VOTERS, can_vote=node_id == 1, **values)
    raft = Raft(config, MemoryLog(), None, Random(1), 0, lambda: 0)
    persist(raft)
    return raft


def persist(raft: Raft) -> None:
    state = raft.take_state()
    if state is not None:
        raft.persisted(state[0], 0)


def sent(raft: Raft) -> tuple[int, Message]:
    raft.tick(0)
    persist(raft)
    (output,) = raft.take_outputs()
    assert isinstance(output, Send)
    return output.correlation, output.request


def test_follower_asks_for_the_configured_number_of_bytes() -> None:
    raft = replica(2, fetch_max_bytes=4321, fetch_snapshot_max_bytes=99)
    raft.replica.become_follower(1, 1, ("h", 9093))
    correlation, request = sent(raft)
    assert request.NAME == "FetchRequest" and request.max_bytes == 4321
    snapshot = FetchResponse.SnapshotId(end_offset=10, epoch=1)
    told = messages.answer(request, (1, 1), ("h", 9093), error_code=0, high_watermark=10, snapshot_id=snapshot)
    raft.response(correlation, told, 0)
    _, request = sent(raft)
    assert request.NAME == "FetchSnapshotRequest" and request.max_bytes == 99


@pytest.mark.parametrize(("size", "taken"), [(100, True), (2000, False)])
def test_batch_over_the_limit_is_not_appended(size: int, taken: bool) -> None:
    raft = replica(1, max_batch_bytes=1000)
    assert raft.is_leader
    end = raft.log.end_offset
    assert (raft.append([bytes(size)]) == end) is taken
    assert raft.log.end_offset == end + taken


@pytest.mark.parametrize(("segment_ms", "segments"), [(HOUR_MS, 2), (3 * HOUR_MS, 1)])
def test_segment_of_the_metadata_log_ends_by_time(tmp_path: Path, segment_ms: int, segments: int) -> None:
    directory = LogDirectory(Environment(), str(tmp_path))
    log = FileLog(directory, segment_ms=segment_ms)
    for timestamp_ms in (1, 2 * HOUR_MS):
        data = data_batch([b"v"], log.end_offset, 1, timestamp_ms)
        assert data is not None
        append(log, data)
    assert len(list(tmp_path.glob("__cluster_metadata-0/*.log"))) == segments
    log.close()
    directory.close()
