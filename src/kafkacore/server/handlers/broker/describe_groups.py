"""DescribeGroups: returns the state, the protocol and the members of groups."""

from __future__ import annotations

from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.messages import DescribeGroupsRequest, DescribeGroupsResponse
from kafkacore.runtime.slices import Work, distinct
from kafkacore.server.authorized import GROUP_OPERATIONS
from kafkacore.server.context import BrokerContext

Group = DescribeGroupsResponse.DescribedGroup


def handle(broker: BrokerContext, call: RequestContext, request: DescribeGroupsRequest) -> Work[DescribeGroupsResponse]:
    response = DescribeGroupsResponse()
    # Clients look up a group in the response by its id, so each id has exactly one entry.
    for group_id in (yield from distinct(request.groups)):
        group = _describe(broker, call, group_id)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = GROUP_OPERATIONS
        response.groups.append(group)
        yield
    return response


def _describe(broker: BrokerContext, call: RequestContext, group_id: str) -> Group:
    try:
        return broker.groups.shard_of(group_id).describe_group(call, group_id)
    except KafkaError as error:
        return Group(group_id=group_id, error_code=error.code)
