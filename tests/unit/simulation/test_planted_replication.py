"""A planted bug behaves as its description says. Random searches rarely reach some of these bugs, so they would not
notice that such a bug no longer fits the code."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.agenda import SimulatedAgenda
from kafkacore._fast.world.environment import ManualClock
from kafkacore._fast.world.simulated_disk import SimulatedDisk
from kafkacore.protocol.errors import ErrorCode
from kafkacore.raft.control import data_batch
from kafkacore.simulation.planted import BY_NAME


def led_partition() -> PartitionHandle:
    """Returns a partition that node 1 leads in epoch 1. Its other replica, on node 2, is in the ISR."""
    disk = SimulatedDisk()
    disk.make_directories("/logs")
    directory = LogDirectory(disk.environment(ManualClock(), SimulatedAgenda()), "/logs")
    made = PartitionHandle(directory, "t", 0, settings=LogSettings(flush_messages=1))
    made.become_leader(1, 1, 1, [(2, True)])
    return made


def test_produce_is_acknowledged_in_the_next_leadership_when_the_bug_is_there() -> None:
    partition = led_partition()
    data = data_batch([b"v"], 0, -1, 0)
    assert data is not None
    done = partition.append(bytearray(data), -1, wait=False)
    part: Any = SimpleNamespace(
        ack=done.ack, partition=partition, answer=SimpleNamespace(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    )

    async def deposed(*arguments: Any) -> None:
        partition.become_follower(2, 2, 2)
        partition.become_leader(1, 3, 3, [(2, True)])
        partition.followed(2, 1)
        partition.flush()

    (patch,) = BY_NAME["acknowledgement-outlives-its-leadership"].patches
    broker = SimpleNamespace(waits=SimpleNamespace(now_ms=lambda: 0))
    asyncio.run(asyncio.wait_for(patch.wrong(deposed)(broker, None, [part], 1_000), 30))
    assert part.answer.error_code == ErrorCode.NONE
