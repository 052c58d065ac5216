"""ListConfigResources: returns the resources that have a configuration or could have one (KIP-714, KIP-1142)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kafkacore.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import ListConfigResourcesRequest, ListConfigResourcesResponse
from kafkacore.runtime.slices import Work
from kafkacore.server.context import BrokerContext
from kafkacore.server.handlers.describe_configs import BROKER_LOGGER
from kafkacore.server.metadata_view import MetadataView

TYPES_SINCE: Final = 1  # since this version, a request can ask for more than client metrics subscriptions
_LISTED: Final = (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)
Resource = ListConfigResourcesResponse.ConfigResource


def handle(
    broker: BrokerContext, call: RequestContext, request: ListConfigResourcesRequest
) -> Work[ListConfigResourcesResponse]:
    supported = _LISTED if call.api_version >= TYPES_SINCE else (CLIENT_METRICS,)
    if not set(request.resource_types) <= set(supported):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    response = ListConfigResourcesResponse()
    for kind in supported:
        if kind in request.resource_types or not request.resource_types:
            for name in _names(broker, call, kind):
                response.config_resources.append(Resource(resource_name=name, resource_type=kind))
                yield
    return response


def _names(broker: BrokerContext, call: RequestContext, kind: int) -> Iterable[str]:
    image = broker.image
    if kind == TOPIC:
        return (topic.name for topic in image.topics())
    if kind in (BROKER, BROKER_LOGGER):
        view = MetadataView(image, call.listener)
        return [str(broker_id) for broker_id in sorted(image.brokers) if view.endpoint(broker_id) is not None]
    return sorted(name for resource_type, name in image.configs if resource_type == kind)
