"""DeleteGroups: removes groups that have no members, and the offsets of these groups (KIP-229)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import KafkaError
from kafkacore.protocol.messages import DeleteGroupsRequest, DeleteGroupsResponse
from kafkacore.runtime.slices import Slice, distinct, finish
from kafkacore.server.context import BrokerContext

BATCH: Final = 32  # a shard deletes at most this many groups in one iteration of the loop
BATCHES_AT_ONCE: Final = 64

Result = DeleteGroupsResponse.DeletableGroupResult


async def handle(broker: BrokerContext, call: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    batches = await _batches(broker, request)
    response = DeleteGroupsResponse()
    for start in range(0, len(batches), BATCHES_AT_ONCE):
        some = batches[start : start + BATCHES_AT_ONCE]
        for results in await asyncio.gather(*(_delete(broker, group_ids) for group_ids in some)):
            response.results += results
    return response


async def _batches(broker: BrokerContext, request: DeleteGroupsRequest) -> list[list[str]]:
    """Returns the groups in batches, without duplicates. All groups of a batch belong to the same shard."""
    filling: dict[int, list[str]] = {}
    batches: list[list[str]] = []
    slice_ = Slice()
    for group_id in await finish(distinct(request.groups_names)):
        await slice_.give_way()
        batch = filling.setdefault(broker.groups.partition_of(group_id), [])
        batch.append(group_id)
        if len(batch) == BATCH:
            batches.append(filling.pop(broker.groups.partition_of(group_id)))
    return batches + list(filling.values())


async def _delete(broker: BrokerContext, group_ids: Sequence[str]) -> list[Result]:
    try:
        results: list[Result] = await broker.groups.ask(
            group_ids[0], lambda shard, waiter, now_ms: shard.delete_groups(group_ids, waiter, now_ms)
        )
    except KafkaError as error:
        return [Result(group_id=group_id, error_code=error.code) for group_id in group_ids]
    await asyncio.sleep(0)
    return results
