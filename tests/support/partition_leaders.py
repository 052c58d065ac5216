"""Partition leaders for a controller in a `controllers.Harness`. The test chooses the replicas, and the leaders report
new ISRs."""

from __future__ import annotations

from typing import Any

from kafkacore.protocol.messages import AlterPartitionRequest, CreateTopicsRequest
from kafkacore.protocol.uuid import Uuid


class Caller:
    forwarded = False

    def __init__(self, api_version: int = 3) -> None:
        self.api_version = api_version


async def create(harness, name: str, *replicas: list[int], **configs: str) -> None:
    made = CreateTopicsRequest
    topic = made.CreatableTopic(
        name=name, num_partitions=-1, replication_factor=-1,
        assignments=[made.CreatableReplicaAssignment(partition_index=i, broker_ids=b) for i, b in enumerate(replicas)],
        configs=[made.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )  # fmt: skip
    response = await harness.controller.create_topics(Caller(7), made(topics=[topic], timeout_ms=1000))
    assert response.topics[0].error_code == 0, response.topics[0].error_message


def asked(harness, isr: list[int], name: str = "t", partition: int = 0, **values: Any) -> Any:
    """Returns the entry of one partition for an AlterPartition request, with the epochs that the partition's leader
    knows."""
    row = harness.partition(name, partition)
    epochs = values.pop("epochs", {})
    known = {each: epochs.get(each, harness.epochs.get(each, -1)) for each in isr}
    values.setdefault("leader_epoch", row.leader_epoch if row else 0)
    values.setdefault("partition_epoch", row.partition_epoch if row else 0)
    return AlterPartitionRequest.PartitionData(
        partition_index=partition,
        new_isr=isr,
        new_isr_with_epochs=[
            AlterPartitionRequest.BrokerState(broker_id=each, broker_epoch=known[each]) for each in isr
        ],
        **values,
    )


async def alter(harness, *partitions: Any, leader: int = 1, version: int = 3, name: str = "t", **values: Any) -> Any:
    topic = harness.controller.image.topic(name)
    values.setdefault("topic_id", topic.topic_id if topic else Uuid(b"?" * 16))
    request = AlterPartitionRequest(
        broker_id=leader,
        broker_epoch=values.pop("broker_epoch", harness.epochs[leader]),
        topics=[AlterPartitionRequest.TopicData(partitions=list(partitions), **values)],
    )
    response = await harness.controller.alter_partition(Caller(version), request)
    (topic_result,) = response.topics
    return topic_result.partitions
