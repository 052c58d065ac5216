"""IncrementalAlterConfigs on a controller's listener (KIP-919): changes the levels of the controller's own loggers, and
settings in the metadata."""

from __future__ import annotations

from typing import Any

from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import KafkaError
from kafkacore.protocol.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from kafkacore.server import loggers
from kafkacore.server.controller_context import ControllerContext
from kafkacore.server.handlers.describe_configs import BROKER_LOGGER

Result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


async def handle(
    controller: ControllerContext, call: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    own = [each for each in request.resources if each.resource_type == BROKER_LOGGER]
    told = [_alter_loggers(controller, each, validate_only=request.validate_only) for each in own]
    if own:
        request.resources = [each for each in request.resources if each.resource_type != BROKER_LOGGER]
    response: Any = IncrementalAlterConfigsResponse()
    if request.resources or not own:
        response = await controller.quorum.incremental_alter_configs(call, request)
    response.responses = [*response.responses, *told]
    made: IncrementalAlterConfigsResponse = response
    return made


def _alter_loggers(controller: ControllerContext, resource: Any, *, validate_only: bool) -> Result:
    result = Result(resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None)
    try:
        loggers.alter(controller.node_id, resource, validate_only=validate_only)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, str(error)
    return result
