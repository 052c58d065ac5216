"""DeleteGroups: groups that nobody is a member of, with their offsets (KIP-229)."""

from __future__ import annotations

import asyncio
from typing import Any

from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import KafkaError
from kafkacore.protocol.messages import DeleteGroupsRequest, DeleteGroupsResponse
from kafkacore.server.context import BrokerContext

Result = DeleteGroupsResponse.DeletableGroupResult


async def handle(broker: BrokerContext, call: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    parts = broker.groups.by_partition(dict.fromkeys(request.groups_names)).values()
    results = await asyncio.gather(*(_delete(broker, group_ids) for group_ids in parts))
    return DeleteGroupsResponse(results=[result for part in results for result in part])


async def _delete(broker: BrokerContext, group_ids: list[str]) -> list[Any]:
    try:
        return await broker.groups.ask(  # type: ignore[no-any-return]
            group_ids[0], lambda shard, waiter, now_ms: shard.delete_groups(group_ids, waiter, now_ms)
        )
    except KafkaError as error:
        return [Result(group_id=group_id, error_code=error.code) for group_id in group_ids]
