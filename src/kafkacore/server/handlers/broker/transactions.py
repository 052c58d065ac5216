"""ListTransactions and DescribeTransactions (KIP-664, KIP-994, KIP-1152) on a broker that coordinates no transactions.

The broker answers like a broker of Apache Kafka that leads no partition of `__transaction_state`. But this broker may
lead a partition of that topic, if Apache Kafka has created the topic. The partition's transactions then have no
coordinator, and the client gets COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from typing import Final

from kafkacore.config.patterns import syntax_error
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.messages import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafkacore.runtime.slices import Work
from kafkacore.server.context import BrokerContext
from kafkacore.storage.names import TRANSACTIONS_TOPIC

STATES: Final = frozenset(
    (
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
        "PrepareEpochFence",
    )
)  # fmt: skip
State = DescribeTransactionsResponse.TransactionState


def handle(
    broker: BrokerContext, call: RequestContext, request: ListTransactionsRequest | DescribeTransactionsRequest
) -> ListTransactionsResponse | Work[DescribeTransactionsResponse]:
    if isinstance(request, ListTransactionsRequest):
        return _list(broker, request)
    return _describe(broker, request)


def _list(broker: BrokerContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    if _left_alone(broker):
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    pattern = request.transactional_id_pattern
    problem = syntax_error(pattern or "")
    if problem is not None:
        text = f"Transaction ID pattern `{pattern}` is not a valid regular expression: {problem}."
        raise error_for(ErrorCode.INVALID_REGULAR_EXPRESSION, text)
    return ListTransactionsResponse(
        unknown_state_filters=[each for each in request.state_filters if each not in STATES]
    )


def _describe(broker: BrokerContext, request: DescribeTransactionsRequest) -> Work[DescribeTransactionsResponse]:
    absent = ErrorCode.COORDINATOR_NOT_AVAILABLE if _left_alone(broker) else ErrorCode.NOT_COORDINATOR
    response = DescribeTransactionsResponse()
    for each in request.transactional_ids:
        error = absent if each else ErrorCode.INVALID_REQUEST
        response.transaction_states.append(State(transactional_id=each, error_code=error))
        yield
    return response


def _left_alone(broker: BrokerContext) -> bool:
    topic = broker.image.topic(TRANSACTIONS_TOPIC)
    return topic is not None and any(
        broker.image.partition_at(row).leader == broker.node_id for row in topic.partition_rows if row >= 0
    )
