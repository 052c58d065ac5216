"""DescribeProducers is answered by every replica of a partition, so that an administrator can compare the replicas."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment
from kafkacore.metadata.image import EMPTY_IMAGE
from kafkacore.network.request import RequestContext
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.messages import DescribeProducersRequest
from kafkacore.replication.replica_manager import ReplicaManager
from kafkacore.runtime.slices import finish_now
from kafkacore.server.handlers.broker import describe_producers


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_producers_are_described_when_the_broker_leads_or_follows_the_partition(tmp_path: Path, role: str) -> None:
    directory = LogDirectory(Environment(), str(tmp_path))
    log = PartitionHandle(directory, "t", 0, Uuid.random(), LogSettings())
    log.become_leader(1, 0)
    batch = RecordBatchBuilder(producer_id=7, producer_epoch=3, base_sequence=0)
    batch.append(1, b"key", b"value")
    assert log.append(batch.build()).error == 0
    if role == "follower":
        log.become_follower(2, 1)
    hosted = SimpleNamespace(by_name=lambda topic, index: log)
    locate = partial(ReplicaManager.locate, hosted)
    broker: Any = SimpleNamespace(image=EMPTY_IMAGE, replicas=SimpleNamespace(locate=locate))
    asked = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])
    call = RequestContext(ApiKey.DESCRIBE_PRODUCERS, 0, 0, None, "PLAINTEXT", "127.0.0.1")
    response = finish_now(describe_producers.handle(broker, call, DescribeProducersRequest(topics=[asked])))
    [described] = response.topics[0].partitions
    assert described.error_code == 0
    assert [(each.producer_id, each.producer_epoch) for each in described.active_producers] == [(7, 3)]
