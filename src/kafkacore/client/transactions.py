"""Requests for producer ids and transactions (KIP-98, KIP-360)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final

from kafkacore.client.cluster import Cluster
from kafkacore.client.connection import Disconnected
from kafkacore.client.options import Options
from kafkacore.protocol.errors import ErrorCode, KafkaError, error_for
from kafkacore.protocol.messages import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
)
from kafkacore.protocol.response_errors import error_of_peer

_NO_ID: Final = -1
_TRANSACTION: Final = 1  # the key type in FindCoordinator
# The last versions in which a client adds partitions to transactions itself and keeps its epoch after a transaction
# (before KIP-890).
_FIND: Final = 3
_INIT: Final = 4
_ADD: Final = 3
_END: Final = 4
_ELSEWHERE: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


def new_producer_id(cluster: Cluster, options: Options) -> tuple[int, int]:
    """Returns the producer id and epoch of an idempotent producer. Raises Unreachable and KafkaError."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=options["transaction.timeout.ms"])
    limit, failures = cluster.deadline(), 0
    while True:
        response = cluster.ask_any(request, limit, _INIT)
        if not response.error_code:
            return response.producer_id, response.producer_epoch
        code = error_of_peer(response.error_code)
        if not code.retriable:
            raise error_for(code)
        cluster.note(code.message)
        failures += 1
        cluster.pause(failures, limit)


class Transactions:
    """The transactions of one transactional.id. Every call waits for the coordinator. Raises Unreachable and
    KafkaError, such as ProducerFencedError and InvalidProducerEpochError if another producer has taken over."""

    def __init__(self, cluster: Cluster, options: Options, transactional_id: str) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._timeout_ms: int = options["transaction.timeout.ms"]
        self._coordinator: int | None = None
        self._added: set[tuple[str, int]] = set()
        self.ids: tuple[int, int] = (_NO_ID, _NO_ID)
        self.is_open = False

    def begin(self) -> None:
        if self.is_open:
            raise ValueError("a transaction is already open")
        if self.ids[0] == _NO_ID:
            self.renew()
        self.is_open = True
        self._added.clear()

    def renew(self) -> None:
        """Requests the producer id with a new epoch. This aborts the open transaction of an earlier producer. Do not
        call it within a transaction."""
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=self.ids[0],
            producer_epoch=self.ids[1],
        )
        response = self._ask(request, _INIT, lambda answer: answer.error_code)
        self.ids = response.producer_id, response.producer_epoch

    def add(self, places: Iterable[tuple[str, int]]) -> None:
        """Adds partitions to the transaction before their first records."""
        new = [place for place in places if place not in self._added]
        if not new:
            return
        topics: dict[str, list[int]] = defaultdict(list)
        for topic, partition in new:
            topics[topic].append(partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self.ids[0],
            v3_and_below_producer_epoch=self.ids[1],
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=each)
                for name, each in topics.items()
            ],
        )
        self._ask(request, _ADD, _worst_of_partitions)
        self._added.update(new)

    def end(self, *, commit: bool) -> None:
        """Commits or aborts the transaction. Does nothing for a transaction without records."""
        if not self.is_open:
            raise ValueError("no transaction is open")
        if self._added:
            request = EndTxnRequest(
                transactional_id=self._id, producer_id=self.ids[0], producer_epoch=self.ids[1], committed=commit
            )
            self._ask(request, _END, lambda answer: answer.error_code)
        self.is_open = False
        self._added.clear()

    # -- the coordinator

    def _ask(self, request: Any, highest: int, error_of: Callable[[Any], int]) -> Any:
        """Repeats the request until its response has no retriable error."""
        limit, failures = self._cluster.deadline(), 0
        while True:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            coordinator = self._find(limit)
            if coordinator is not None:
                try:
                    response = self._cluster.ask(coordinator, request, limit, highest)
                except (Disconnected, TimeoutError) as error:
                    self._cluster.broke(coordinator, error)
                else:
                    code = error_of_peer(error_of(response))
                    if code == ErrorCode.NONE:
                        return response
                    if not _is_retriable(code):
                        raise self._error(code)
                    self._cluster.note(code.message)
            if code in _ELSEWHERE:
                self._coordinator = None
            failures += 1
            self._cluster.pause(failures, limit)

    def _find(self, limit: float) -> int | None:
        if self._coordinator is None:
            request = FindCoordinatorRequest(key=self._id, key_type=_TRANSACTION)
            response = self._cluster.ask_any(request, limit, _FIND)
            code = error_of_peer(response.error_code)
            if code != ErrorCode.NONE:
                if not code.retriable:
                    raise self._error(code, response.error_message)
                self._cluster.note(code.message)
                return None
            self._coordinator = response.node_id
            self._cluster.add_node(response.node_id, response.host, response.port)
        return self._coordinator

    def _error(self, code: ErrorCode, reason: str | None = None) -> KafkaError:
        return error_for(code, f"transactional.id {self._id}: {reason or code.message}")


def _is_retriable(code: ErrorCode) -> bool:
    return code.retriable or code == ErrorCode.CONCURRENT_TRANSACTIONS


def _worst_of_partitions(answer: Any) -> int:
    """Returns one error for all partitions of the response, or 0. An error that ends the transaction has precedence
    over a retriable error."""
    codes = [
        each.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    ]
    codes = [code for code in codes if code and code != ErrorCode.OPERATION_NOT_ATTEMPTED]
    return min(codes, key=lambda code: _is_retriable(error_of_peer(code)), default=0)
