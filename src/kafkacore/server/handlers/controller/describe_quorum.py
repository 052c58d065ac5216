"""DescribeQuorum (KIP-836, KIP-853): the state machine of the metadata log answers it."""

from __future__ import annotations

from kafkacore.network.request import RequestContext
from kafkacore.protocol.messages import DescribeQuorumRequest, DescribeQuorumResponse
from kafkacore.protocol.uuid import ZERO
from kafkacore.server.controller_context import ControllerContext

DIRECTORIES_SINCE = 2  # since this version, a response has replicas' directories and nodes' endpoints


async def handle(
    controller: ControllerContext, call: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    response = await controller.raft.request(request)
    assert isinstance(response, DescribeQuorumResponse)
    if call.api_version < DIRECTORIES_SINCE:
        response.nodes = []
        for topic in response.topics:
            for partition in topic.partitions:
                for replica in (*partition.current_voters, *partition.observers):
                    replica.replica_directory_id = ZERO
    return response
