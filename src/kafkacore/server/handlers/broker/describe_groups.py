"""DescribeGroups: state, protocol and members of groups."""

from __future__ import annotations

from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.messages import DescribeGroupsRequest, DescribeGroupsResponse
from kafkacore.server.authorized import GROUP_OPERATIONS
from kafkacore.server.context import BrokerContext

Group = DescribeGroupsResponse.DescribedGroup


def handle(broker: BrokerContext, call: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    asked = tuple(dict.fromkeys(request.groups))  # clients look for an answer by its id, and need one of each
    described: dict[str, Group] = {}
    for group_ids in broker.groups.by_partition(asked).values():
        described.update(zip(group_ids, _describe(broker, call, group_ids), strict=True))
    groups = [described[group_id] for group_id in asked]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = GROUP_OPERATIONS
    return DescribeGroupsResponse(groups=groups)


def _describe(broker: BrokerContext, call: RequestContext, group_ids: list[str]) -> list[Group]:
    try:
        return broker.groups.shard_of(group_ids[0]).describe_groups(call, group_ids)
    except KafkaError as error:
        return [Group(group_id=group_id, error_code=error.code) for group_id in group_ids]
