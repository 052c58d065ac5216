"""ListTransactions and DescribeTransactions (KIP-664, KIP-994, KIP-1152), of a broker that coordinates no transaction.

It answers as one of Apache Kafka's that leads no partition of __transaction_state. Where a cluster of Apache Kafka has
left such partitions here, their transactions are nobody's, and a client is told that.
"""

from __future__ import annotations

import re
from typing import Any, Final

from kafkacore.network.request import RequestContext
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.messages import DescribeTransactionsResponse, ListTransactionsResponse
from kafkacore.server.context import BrokerContext
from kafkacore.storage.names import TRANSACTIONS_TOPIC

STATES: Final = frozenset(
    (
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
        "PrepareEpochFence",
    )
)  # fmt: skip


def handle(broker: BrokerContext, call: RequestContext, request: Any) -> Any:
    return _list(broker, request) if call.api_key == ApiKey.LIST_TRANSACTIONS else _describe(broker, request)


def _list(broker: BrokerContext, request: Any) -> ListTransactionsResponse:
    if _left_alone(broker):
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    pattern = request.transactional_id_pattern
    try:
        re.compile(pattern or "")
    except re.error as error:
        problem = f"Transaction ID pattern `{pattern}` is not a valid regular expression: {error}."
        raise error_for(ErrorCode.INVALID_REGULAR_EXPRESSION, problem) from None
    return ListTransactionsResponse(
        unknown_state_filters=[each for each in request.state_filters if each not in STATES]
    )


def _describe(broker: BrokerContext, request: Any) -> DescribeTransactionsResponse:
    absent = ErrorCode.COORDINATOR_NOT_AVAILABLE if _left_alone(broker) else ErrorCode.NOT_COORDINATOR
    made = DescribeTransactionsResponse.TransactionState
    return DescribeTransactionsResponse(
        transaction_states=[
            made(transactional_id=each, error_code=absent if each else ErrorCode.INVALID_REQUEST)
            for each in request.transactional_ids
        ]
    )


def _left_alone(broker: BrokerContext) -> bool:
    topic = broker.image.topic(TRANSACTIONS_TOPIC)
    return topic is not None and any(
        broker.image.partition_at(row).leader == broker.node_id for row in topic.partition_rows if row >= 0
    )
