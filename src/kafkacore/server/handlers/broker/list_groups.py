"""ListGroups: the groups of the partitions that this broker leads, by state and type if asked so (KIP-518, KIP-848)."""

from __future__ import annotations

from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import ListGroupsRequest, ListGroupsResponse
from kafkacore.runtime.slices import Work
from kafkacore.server.context import BrokerContext


def handle(broker: BrokerContext, call: RequestContext, request: ListGroupsRequest) -> Work[ListGroupsResponse]:
    runtime = broker.groups.runtime
    if runtime.loading:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    response = ListGroupsResponse()
    for shard in tuple(runtime.active()):
        response.groups += yield from shard.list_groups(request.states_filter, request.types_filter)
    return response
