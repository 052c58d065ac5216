"""Finds the current leader of a partition that this broker does not lead, and the leader's address (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafkacore.network.request import RequestContext
from kafkacore.protocol.uuid import Uuid
from kafkacore.server.context import BrokerContext
from kafkacore.server.metadata_view import MetadataView

NOBODY = (-1, -1)


def current_leader(broker: BrokerContext, topic_name: str, index: int) -> tuple[int, int]:
    """Returns the leader id and the leader epoch in the committed metadata."""
    topic = broker.image.topic(topic_name)
    partition = None if topic is None else broker.image.partition(topic, index)
    return NOBODY if partition is None else (partition.leader, partition.leader_epoch)


def endpoints(broker: BrokerContext, call: RequestContext, leaders: Iterable[int], node_class: Any) -> list[Any]:
    """Returns one entry for each leader that is alive and has the client's listener."""
    view = MetadataView(broker.image, call.listener)
    found = []
    for leader in sorted(set(leaders)):
        where = view.alive_endpoint(leader)
        if where is not None:
            rack = view.image.brokers[leader].rack
            found.append(node_class(node_id=leader, host=where.host, port=where.port, rack=rack))
    return found


def topic_name(broker: BrokerContext, topic_id: Uuid) -> str | None:
    topic = broker.image.topic_by_id(topic_id)
    return None if topic is None else topic.name
