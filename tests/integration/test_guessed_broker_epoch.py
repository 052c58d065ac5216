"""A client that reaches the controller can guess a broker's epoch, and request a controlled shutdown in the name of the
broker. The broker must continue to serve."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from kafkacore.network.client import NodeClient
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import BrokerHeartbeatRequest, CreateTopicsRequest
from kafkacore.server.node import Node
from kafkacore.tools import dev

MOST_EPOCHS = 200


async def ask_to_leave(controller: str) -> None:
    """Sends heartbeats in the broker's name, with one epoch after another, until one is the broker's real epoch."""
    host, port = controller.split(":")
    client = NodeClient(host, int(port), "stranger")
    created = CreateTopicsRequest.CreatableTopic(name="a", num_partitions=1, replication_factor=1)
    assert (await client.request(CreateTopicsRequest(topics=[created], timeout_ms=10_000))).topics[0].error_code == 0
    for epoch in range(MOST_EPOCHS):
        request = BrokerHeartbeatRequest(
            broker_id=1, broker_epoch=epoch, current_metadata_offset=1 << 40, want_shut_down=True
        )
        answer = await client.request(request)
        if answer.error_code == ErrorCode.NONE:
            break
        assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
    else:
        raise AssertionError("no epoch was that of the broker")
    await client.close()


@pytest.mark.timeout(60)
def test_node_leads_again_and_stops_at_once_after_a_stranger_asked_it_to_leave(tmp_path: Path) -> None:
    config = dev.configuration(str(tmp_path), 0, [])
    dev.prepare(config)
    node = Node(config)
    with node:
        assert node.controller is not None
        asyncio.run(ask_to_leave(node.controller))
        publisher = node.broker._publisher
        deadline = time.monotonic() + 10
        while True:
            image = publisher.image
            topic = image.topic("a")
            if topic is not None and image.is_active(1) and image.partition(topic, 0).leader == 1:
                break
            assert time.monotonic() < deadline, f"it is {image.brokers[1]}"
            time.sleep(0.01)
        waited = 10 - (deadline - time.monotonic())
        began = time.monotonic()
    stopped = time.monotonic() - began
    print(f"\nwithout a leader for {waited:.2f} s, stopped in {stopped:.2f} s")
    assert waited < 1
    assert stopped < 5
