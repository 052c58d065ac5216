"""ListGroups: returns the groups that this broker coordinates. A request can filter the groups by state and type
(KIP-518, KIP-848)."""

from __future__ import annotations

from kafkacore.coordinator.group.admin import state_filter, type_filter
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
    states = yield from state_filter(request.states_filter)
    types = yield from type_filter(request.types_filter)
    for shard in tuple(runtime.active()):
        response.groups += yield from shard.list_groups(states, types)
    return response
