"""DescribeCluster on a broker's listener: returns the brokers (KIP-700, KIP-919, KIP-1073)."""

from __future__ import annotations

from typing import Final

from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.messages import DescribeClusterRequest, DescribeClusterResponse
from kafkacore.server.authorized import CLUSTER_OPERATIONS
from kafkacore.server.context import BrokerContext
from kafkacore.server.metadata_view import MetadataView

BROKERS: Final = 1
CONTROLLERS: Final = 2

Broker = DescribeClusterResponse.DescribeClusterBroker


def handle(broker: BrokerContext, call: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    check_endpoint_type(request.endpoint_type, BROKERS)
    view = MetadataView(broker.image, call.listener)
    response = DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        endpoint_type=BROKERS,
        controller_id=broker.controller_seen(view),
    )
    for broker_id, each in sorted(view.image.brokers.items()):
        where = view.endpoint(broker_id)
        if where is not None and (not each.fenced or request.include_fenced_brokers):
            shown = Broker(broker_id=broker_id, host=where.host, port=where.port, rack=each.rack)
            if call.api_version >= 2:
                shown.is_fenced = each.fenced
            response.brokers.append(shown)
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def check_endpoint_type(asked: int, own: int) -> None:
    """Raises MISMATCHED_ENDPOINT_TYPE if the request asks for the other kind of endpoint, and UNSUPPORTED_ENDPOINT_TYPE
    if it asks for an unknown kind."""
    if asked == own:
        return
    if asked not in (BROKERS, CONTROLLERS):
        raise error_for(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"There is no endpoint type {asked}.")
    names = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}
    raise error_for(
        ErrorCode.MISMATCHED_ENDPOINT_TYPE,
        f"This endpoint is a {names[own]}'s; the request is for one of type {names[asked]}.",
    )
