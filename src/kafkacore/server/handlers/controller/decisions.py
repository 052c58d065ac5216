"""Requests about which the quorum controller decides. The controller validates a request, writes the decision to the
metadata log, and answers after the commit.

QuorumController has one method for each request. The method's docstring lists the errors of the request.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

from kafkacore.controller.quorum.controller import QuorumController
from kafkacore.network.request import RequestContext
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.messages import Message
from kafkacore.server.controller_context import ControllerContext

_METHODS: Final[dict[int, Any]] = {
    ApiKey.CREATE_TOPICS: QuorumController.create_topics,
    ApiKey.DELETE_TOPICS: QuorumController.delete_topics,
    ApiKey.ALTER_CONFIGS: QuorumController.alter_configs,
    ApiKey.CREATE_PARTITIONS: QuorumController.create_partitions,
    ApiKey.ELECT_LEADERS: QuorumController.elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: QuorumController.alter_partition_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: QuorumController.list_partition_reassignments,
    ApiKey.ALTER_CLIENT_QUOTAS: QuorumController.alter_client_quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: QuorumController.alter_user_scram_credentials,
    ApiKey.UPDATE_FEATURES: QuorumController.update_features,
    ApiKey.BROKER_REGISTRATION: QuorumController.register_broker,
    ApiKey.BROKER_HEARTBEAT: QuorumController.heartbeat,
    ApiKey.UNREGISTER_BROKER: QuorumController.unregister_broker,
    ApiKey.CONTROLLER_REGISTRATION: QuorumController.register_controller,
    ApiKey.ALLOCATE_PRODUCER_IDS: QuorumController.allocate_producer_ids,
    ApiKey.ALTER_PARTITION: QuorumController.alter_partition,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: QuorumController.assign_replicas_to_dirs,
}


def handle(controller: ControllerContext, call: RequestContext, request: Message) -> Awaitable[Message]:
    decided: Awaitable[Message] = _METHODS[call.api_key](controller.quorum, call, request)
    return decided
