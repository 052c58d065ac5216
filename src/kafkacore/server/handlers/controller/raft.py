"""The requests between Raft replicas: the state machine of the metadata log answers them."""

from __future__ import annotations

from collections.abc import Awaitable

from kafkacore.network.request import RequestContext
from kafkacore.protocol.messages import Message
from kafkacore.server.controller_context import ControllerContext


def handle(controller: ControllerContext, call: RequestContext, request: Message) -> Awaitable[Message]:
    return controller.raft.request(request)
