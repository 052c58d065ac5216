"""An idempotent producer of a simulated client (KIP-98). It has up to two batches in flight for each partition, and
sends these batches again, in their order, until a broker acknowledges them or the producer gives up."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import ProduceRequest
from kafkacore.simulation.routes import drop_topic

# After these errors a producer cannot continue. They mean that the broker has lost acknowledged records, or confuses
# this producer with another one.
FATAL: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
    }
)


class Batch(NamedTuple):
    """Records for one partition. The client first sent them at `sent_ns`."""

    values: list[bytes]
    data: bytes
    sent_ns: int


class Producer:
    """The state of an idempotent producer. `producer_id` and `epoch` come from InitProducerId."""

    def __init__(self, producer_id: int, epoch: int) -> None:
        self._id, self._epoch = producer_id, epoch
        self._sequences: dict[tuple[str, int], int] = {}
        self._under_way: dict[tuple[str, int], list[Batch]] = {}
        self._overtaken: dict[tuple[str, int], None] = {}
        self._acknowledged: dict[tuple[str, int], None] = {}

    def in_flight(self, name: str, index: int) -> list[Batch]:
        """Returns the batches that must be sent again, the oldest first."""
        return self._under_way.setdefault((name, index), [])

    def begin(self, name: str, index: int, values: list[bytes], wall_ms: int, now_ns: int) -> Batch:
        sequence = self._sequences.get((name, index), 0)
        builder = RecordBatchBuilder(producer_id=self._id, producer_epoch=self._epoch, base_sequence=sequence)
        for value in values:
            builder.append(wall_ms, None, value)
        self._sequences[name, index] = sequence + len(values)
        batch = Batch(values, builder.build(), now_ns)
        self.in_flight(name, index).append(batch)
        return batch

    def is_known(self, name: str, index: int) -> bool:
        """Returns whether brokers know this producer, because one has acknowledged a batch. A broker that does not know
        the producer takes any batch as the first one, even if another batch should come before it."""
        return (name, index) in self._acknowledged

    def may_be_refused(self, name: str, index: int, batch: Batch) -> bool:
        """Returns whether a broker may refuse a batch because of its sequence number. This can happen if an earlier
        batch is still in flight, or after a broker has accepted the partition's batches in the wrong order."""
        return self.in_flight(name, index)[:1] != [batch] or (name, index) in self._overtaken

    def end(self, name: str, index: int, batch: Batch) -> None:
        """Removes a batch, because it was acknowledged."""
        if self.in_flight(name, index)[:1] != [batch]:
            self._overtaken[name, index] = None
        self._acknowledged[name, index] = None
        self._under_way[name, index] = [each for each in self.in_flight(name, index) if each is not batch]

    def give_up(self) -> None:
        """Drops all batches in flight, and begins a new epoch, as a producer does when its delivery timeout has passed
        (KIP-360). Brokers must refuse the dropped batches once they have a batch of the new epoch."""
        self._epoch += 1
        for known in (self._sequences, self._under_way, self._overtaken):
            known.clear()

    def forget(self, name: str) -> None:
        """Drops all batches in flight to a topic, because the topic is deleted."""
        drop_topic(name, self._sequences, self._under_way, self._overtaken, self._acknowledged)


def produce_request(name: str, index: int, data: bytes, timeout_ms: int, acks: int = -1) -> ProduceRequest:
    """Returns a Produce request with one batch for one partition."""
    partition = ProduceRequest.PartitionProduceData(index=index, records=data)
    topic = ProduceRequest.TopicProduceData(name=name, partition_data=[partition])
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])


def answer_for(response: Any) -> Any:
    """Returns the result of the only partition in the response to `produce_request`."""
    return response.responses[0].partition_responses[0]
