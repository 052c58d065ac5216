"""DescribeCluster on a controller's listener: returns the controllers (KIP-919)."""

from __future__ import annotations

from kafkacore.network.request import RequestContext
from kafkacore.protocol.messages import DescribeClusterRequest, DescribeClusterResponse
from kafkacore.server.authorized import CLUSTER_OPERATIONS
from kafkacore.server.controller_context import ControllerContext
from kafkacore.server.handlers.broker.describe_cluster import CONTROLLERS, check_endpoint_type

Node = DescribeClusterResponse.DescribeClusterBroker


def handle(
    controller: ControllerContext, call: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    # A request of version 0 has no endpoint type. It asks for brokers, which this listener refuses.
    check_endpoint_type(request.endpoint_type, CONTROLLERS)
    response = DescribeClusterResponse(
        cluster_id=controller.cluster_id, endpoint_type=CONTROLLERS, controller_id=controller.raft.leader_id
    )
    for controller_id, each in sorted(controller.quorum.image.controllers.items()):
        where = next((end for end in each.endpoints if end.name == call.listener), None)
        if where is not None:
            response.brokers.append(Node(broker_id=controller_id, host=where.host, port=where.port))
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response
