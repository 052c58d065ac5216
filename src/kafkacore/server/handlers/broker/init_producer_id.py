"""InitProducerId: allocates an id for an idempotent producer. Transactional ids are refused, because the node does not
support transactions yet."""

from __future__ import annotations

from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.messages import InitProducerIdRequest, InitProducerIdResponse
from kafkacore.server.context import BrokerContext
from kafkacore.server.handlers.broker.find_coordinator import NO_TRANSACTIONS_ERROR


async def handle(broker: BrokerContext, call: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _refused(NO_TRANSACTIONS_ERROR if request.transactional_id else ErrorCode.INVALID_REQUEST)
    try:
        # The producer's former id is ignored. Without a transactional id, a new producer id does not fence any
        # producer.
        producer_id = await broker.producer_ids.generate()
    except TimeoutError:  # no controller has allocated a block of ids; Apache Kafka returns the same error
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    except KafkaError as error:
        return _refused(ErrorCode(error.code) if error.retriable else ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)
