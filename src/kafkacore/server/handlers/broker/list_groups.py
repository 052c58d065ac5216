"""ListGroups: the groups of the partitions that are led here, by state and type if asked so (KIP-518, KIP-848)."""

from __future__ import annotations

from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import ListGroupsRequest, ListGroupsResponse
from kafkacore.server.context import BrokerContext


def handle(broker: BrokerContext, call: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    runtime = broker.groups.runtime
    if runtime.loading:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    found = [
        group for shard in runtime.active() for group in shard.list_groups(request.states_filter, request.types_filter)
    ]
    return ListGroupsResponse(groups=found)
