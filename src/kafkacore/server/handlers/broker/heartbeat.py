"""Heartbeat: a member shows that it is alive, and learns whether its group is rebalancing."""

from __future__ import annotations

from kafkacore.coordinator.group import answers
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import KafkaError
from kafkacore.protocol.messages import HeartbeatRequest, Message
from kafkacore.server.context import BrokerContext


def handle(broker: BrokerContext, call: RequestContext, request: HeartbeatRequest) -> Message:
    groups = broker.groups
    refused = answers.refusal(groups.settings, request, call.api_version)
    if refused is not None:
        return refused
    try:
        return groups.shard_of(request.group_id).heartbeat(request, groups.now_ms())
    except KafkaError as error:
        return answers.whole_request(request, error.code, call.api_version)
