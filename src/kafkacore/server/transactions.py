"""Transactions on partitions that this broker leads: the broker verifies a producer's batches with the transaction
coordinator.

The coordinator is a broker of Apache Kafka. Before the first batch of a transaction in a partition, the leader asks the
coordinator whether the partition belongs to an open transaction (KIP-890). Otherwise a late batch could open a
transaction that is never ended. If a marker arrives during this check, the check ends and the batch is refused.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, NamedTuple

from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore.config import BrokerConfig
from kafkacore.metadata.image import MetadataImage
from kafkacore.network.client import ClientLimits, Connect
from kafkacore.network.lanes import Lane, LaneLimits
from kafkacore.protocol.errors import ErrorCode, UnsupportedVersionError
from kafkacore.protocol.messages import AddPartitionsToTxnRequest
from kafkacore.server.coordinator_keys import java_hash
from kafkacore.storage.names import TRANSACTIONS_TOPIC

LOG: Final = logging.getLogger("kafkacore.server")
# Limit of known pairs of producer and partition. Above it, the broker drops all pairs and must verify them again.
MOST_KNOWN: Final = 100_000
# When this many pairs are known, the pairs whose leadership has ended are dropped for the first time.
_SWEPT_AT: Final = 1000
ABORTABLE_SINCE: Final = 11  # since this version of Produce, clients know TRANSACTION_ABORTABLE
ADDS_SINCE: Final = 12  # since this version of Produce, the leader adds the partition for its producer
_BACKOFF_MS: Final = 50
Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
_Key = tuple[PartitionHandle, int]  # a partition and a producer id
# Errors after which the producer should send the batch again. Clients would not retry after these codes, so they get
# NOT_ENOUGH_REPLICAS instead. Only producers that know CONCURRENT_TRANSACTIONS as an answer to Produce get that code.
_LATER: Final = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
    )
)  # fmt: skip


class Refused(NamedTuple):
    """The reason why a batch must not be appended: Kafka's error and a message."""

    error: ErrorCode
    message: str


class _Known(NamedTuple):
    """The state of a producer in a partition, until the transaction's marker arrives: the producer's epoch, and the
    leadership (`PartitionHandle.generation`). `lowest` is the lowest base sequence of the batches that the broker has
    begun to verify, or None after one of them was appended."""

    epoch: int
    generation: int
    lowest: int | None


class Check:
    """A verification in progress, for one producer in one partition."""

    __slots__ = ("_generation", "appending", "marked", "partition", "users")

    def __init__(self, partition: PartitionHandle) -> None:
        self.partition, self._generation = partition, partition.generation
        self.appending = asyncio.Lock()
        self.marked = False  # a marker has arrived since the verification began
        self.users = 0

    @property
    def refusal(self) -> ErrorCode:
        """Returns the reason why the batch must not be appended although it was verified, or `NONE`. After a marker,
        the transaction has ended. If this broker has lost the leadership meanwhile, another leader may have written the
        marker, and the producer must send the batch again."""
        if self.marked:
            return ErrorCode.INVALID_TXN_STATE
        is_led = self.partition.generation == self._generation
        return ErrorCode.NONE if is_led else ErrorCode.NOT_LEADER_OR_FOLLOWER


class Transactions:
    """Verifies the transactions of producers on a broker. Belongs to the data plane's loop."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        read_image: Callable[[], MetadataImage],
        count_partitions: Callable[[str], int | None],
        randomness: random.Random,
        connect: Connect | None,
    ) -> None:
        """Creates the object without verified producers. `count_partitions` returns the number of partitions of
        `__transaction_state`, or None if the topic does not exist."""
        self._config, self._read_image, self._count_partitions = config, read_image, count_partitions
        settings = config()
        limits = ClientLimits(
            request_timeout_ms=settings.request_timeout_ms,
            connection_setup_timeout_ms=settings.socket_connection_setup_timeout_ms,
            reconnect_backoff_ms=_BACKOFF_MS,
            reconnect_backoff_max_ms=_BACKOFF_MS,
            max_response_bytes=settings.socket_request_max_bytes,
        )
        self._lane = Lane(f"broker-{settings.node_id}-transactions", LaneLimits(limits), randomness, connect)
        self._checks: dict[_Key, Check] = {}
        self._known: dict[_Key, _Known] = {}
        self._sweep_at = _SWEPT_AT

    async def close(self) -> None:
        await self._lane.close()

    # --- a producer's batches ---

    @asynccontextmanager
    async def checking(self, partition: PartitionHandle, producer_id: int) -> AsyncIterator[Check]:
        """Returns a context manager that holds a check. Enter it before asking the coordinator, and leave it after the
        batch was appended."""
        key = partition, producer_id
        check = self._checks.get(key)
        if check is None:
            check = self._checks[key] = Check(partition)
        check.users += 1
        try:
            yield check
        finally:
            check.users -= 1
            if not check.users and self._checks.get(key) is check:
                del self._checks[key]

    def is_verified(self, partition: PartitionHandle, producer_id: int, epoch: int) -> bool:
        return self._known.get((partition, producer_id)) == _Known(epoch, partition.generation, None)

    def verifying(self, partition: PartitionHandle, producer_id: int, epoch: int, sequence: int) -> None:
        """Notes the base sequence of a batch whose verification begins. The verification may fail, and the producer
        then sends the batch again. Until then, the log must not accept a later batch. Otherwise the log would refuse
        the repeated batch."""
        known = self._known.get((partition, producer_id))
        if known is not None and known.generation == partition.generation:
            is_lower = known.lowest is not None and sequence < known.lowest
            if known.epoch > epoch or (known.epoch == epoch and not is_lower):
                return
        self._note(partition, producer_id, _Known(epoch, partition.generation, sequence))

    def overtakes(self, partition: PartitionHandle, producer_id: int, epoch: int, sequence: int) -> bool:
        """Returns whether an earlier batch of the transaction must be appended before the batch with this base
        sequence (VerificationStateEntry.lowestSequence)."""
        known = self._known.get((partition, producer_id))
        if known is None or known.lowest is None or known[:2] != (epoch, partition.generation):
            return False
        return known.lowest < sequence

    def appended(self, check: Check, producer_id: int, epoch: int) -> None:
        """Notes that a checked batch was appended. Later batches of the same transaction need no check while this
        broker leads the partition. Another leader could write the marker, and this broker would not notice. If the
        check ended during the append, does nothing: a marker waits for the append, or the leadership has ended."""
        if check.refusal != ErrorCode.NONE:
            return
        self._note(check.partition, producer_id, _Known(epoch, check.partition.generation, None))

    def _note(self, partition: PartitionHandle, producer_id: int, known: _Known) -> None:
        if len(self._known) >= self._sweep_at:
            self._sweep()
        self._known[partition, producer_id] = known

    def _sweep(self) -> None:
        """Drops the pairs whose leadership has ended. Their partitions may have been deleted, and would otherwise stay
        in memory. The next sweep comes when the number of pairs has doubled, so that a sweep costs little for each
        pair."""
        left = {key: known for key, known in self._known.items() if known.generation == key[0].generation}
        self._known = left if len(left) < MOST_KNOWN else {}
        self._sweep_at = min(max(2 * len(self._known), _SWEPT_AT), MOST_KNOWN)

    async def verify(
        self, transactional_id: str, producer_id: int, epoch: int, places: Sequence[tuple[str, int]], produce: int
    ) -> dict[tuple[str, int], Refused]:
        """Asks the coordinator about these partitions (topic and index). `produce` is the version of the producer's
        Produce request. Returns the partitions whose batches must be refused."""
        adds, config = produce >= ADDS_SINCE, self._config()
        if not adds and not config.transaction_partition_verification_enable:
            return {}
        image = self._read_image()
        coordinator = coordinator_of(image, self._count_partitions(TRANSACTIONS_TOPIC), transactional_id)
        if coordinator is None:
            return _all(places, ErrorCode.INVALID_TXN_STATE, "Transactions are not available.")
        node = image.brokers.get(coordinator)
        endpoint = None if node is None else node.endpoint(config.inter_broker_listener_name)
        if endpoint is None:
            return _all(places, *refusal_of(ErrorCode.COORDINATOR_NOT_AVAILABLE, produce))
        transaction = Transaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            verify_only=not adds,
            topics=_by_topic(places),
        )
        try:
            answer = await self._lane.send(
                endpoint.host, endpoint.port, AddPartitionsToTxnRequest(transactions=[transaction])
            )
        except UnsupportedVersionError:
            if adds:  # the coordinator would not know the partitions, so it would not end the transaction in them
                LOG.warning("broker %d cannot add partitions to transactions", coordinator)
                return _all(places, *refusal_of(ErrorCode.COORDINATOR_NOT_AVAILABLE, produce))
            LOG.warning("broker %d cannot verify transactions, so this broker appends unverified batches", coordinator)
            return {}
        except OSError as error:
            LOG.warning("broker %d did not verify transaction %r: %s", coordinator, transactional_id, error)
            return _all(places, *refusal_of(ErrorCode.NETWORK_EXCEPTION, produce))
        if answer.error_code:
            return _all(places, *refusal_of(_known(answer.error_code), produce))
        return _refusals(answer, places, produce)

    # --- markers ---

    @asynccontextmanager
    async def ending(self, partition: PartitionHandle, producer_id: int) -> AsyncIterator[None]:
        """Returns a context manager for the append of a marker. The context manager ends the partition's checks of this
        producer, so that none of the checked batches is appended after the marker."""
        key = partition, producer_id
        self._known.pop(key, None)
        check = self._checks.pop(key, None)
        async with AsyncExitStack() as append:
            if check is not None:
                check.marked = True
                await append.enter_async_context(check.appending)
            yield
        # A verification that began meanwhile belongs to the transaction that has ended.
        self._known.pop(key, None)


def coordinator_of(image: MetadataImage, count: int | None, transactional_id: str) -> int | None:
    """Returns the id of the broker that leads the transactional id's partition of `__transaction_state`. Returns -1
    while the partition has no leader. `count` is the number of partitions of that topic. If `count` is None because the
    topic does not exist, returns None."""
    if count is None:
        return None
    topic = image.topic(TRANSACTIONS_TOPIC)
    partition = None if topic is None else image.partition(topic, java_hash(transactional_id) % count)
    return -1 if partition is None else partition.leader


def _by_topic(places: Iterable[tuple[str, int]]) -> list[Topic]:
    topics: dict[str, list[int]] = {}
    for name, index in places:
        topics.setdefault(name, []).append(index)
    return [Topic(name=name, partitions=indexes) for name, indexes in topics.items()]


def _refusals(answer: object, places: Sequence[tuple[str, int]], produce: int) -> dict[tuple[str, int], Refused]:
    """Returns the partitions that the response refuses. A partition that is missing in the response is refused too."""
    errors: dict[tuple[str, int], int] = {}
    for transaction in answer.results_by_transaction:  # type: ignore[attr-defined]
        for topic in transaction.topic_results:
            for each in topic.results_by_partition:
                errors[topic.name, each.partition_index] = each.partition_error_code
    refused = {}
    for place in places:
        error = _known(errors.get(place, ErrorCode.INVALID_TXN_STATE))
        if error != ErrorCode.NONE:
            refused[place] = refusal_of(error, produce)
    return refused


def _known(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def refusal_of(error: ErrorCode, produce: int) -> Refused:
    """Returns what a producer with version `produce` of Produce gets for the coordinator's error
    (ReplicaManager.handleProduceAppend)."""
    knows_busy = error == ErrorCode.CONCURRENT_TRANSACTIONS and produce >= ADDS_SINCE
    if error in _LATER and not knows_busy:
        text = f"The broker could not verify the partition's part in the transaction: {error.name}."
        return Refused(ErrorCode.NOT_ENOUGH_REPLICAS, text)
    if error == ErrorCode.PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    if error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        error = ErrorCode.INVALID_TXN_STATE
    if error == ErrorCode.TRANSACTION_ABORTABLE and produce < ABORTABLE_SINCE:
        error = ErrorCode.INVALID_TXN_STATE
    if error == ErrorCode.INVALID_TXN_STATE:
        return Refused(error, "The partition does not belong to an open transaction of this producer.")
    return Refused(error, error.message)


def _all(places: Iterable[tuple[str, int]], error: ErrorCode, message: str) -> dict[tuple[str, int], Refused]:
    return dict.fromkeys(places, Refused(error, message))
