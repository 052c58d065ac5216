"""How long a broker trusts the transaction coordinator's check of a producer, and the errors of a failed check."""

from __future__ import annotations

import asyncio
import random
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore.protocol.errors import ErrorCode, UnsupportedVersionError
from kafkacore.server.transactions import ABORTABLE_SINCE, ADDS_SINCE, Check, Transactions, refusal_of


@pytest.fixture
def transactions() -> Transactions:
    settings: Any = SimpleNamespace(
        node_id=1,
        transaction_partition_verification_enable=True,
        inter_broker_listener_name="PLAINTEXT",
        request_timeout_ms=1000,
        socket_connection_setup_timeout_ms=1000,
        socket_request_max_bytes=1 << 20,
    )
    return Transactions(lambda: settings, lambda: None, lambda name: None, random.Random(1), None)  # type: ignore[arg-type, return-value]


class Led:
    """A stub of a partition that this broker leads."""

    generation = 3


@pytest.fixture
def partition() -> Any:
    return Led()


def test_later_batches_are_verified_when_their_first_batch_was(transactions: Transactions, partition: Any) -> None:
    transactions.appended(Check(partition), 7, 0)
    assert transactions.is_verified(partition, 7, 0)
    assert not transactions.is_verified(partition, 7, 1)
    assert not transactions.is_verified(partition, 8, 0)


def test_verification_ends_when_the_leadership_ends(transactions: Transactions, partition: Any) -> None:
    transactions.appended(Check(partition), 7, 0)
    partition.generation += 1
    assert not transactions.is_verified(partition, 7, 0)


def test_check_ends_when_the_leadership_ends(transactions: Transactions, partition: Any) -> None:
    async def check() -> None:
        async with transactions.checking(partition, 7) as check:
            assert check.refusal == ErrorCode.NONE
            partition.generation += 1
            assert check.refusal == ErrorCode.NOT_LEADER_OR_FOLLOWER  # the producer sends the batch again

    asyncio.run(check())


def test_check_ends_when_a_marker_arrives(transactions: Transactions, partition: Any) -> None:
    async def check() -> None:
        transactions.appended(Check(partition), 7, 0)
        async with transactions.checking(partition, 7) as check:
            async with transactions.ending(partition, 7):
                partition.generation += 1
                assert check.refusal == ErrorCode.INVALID_TXN_STATE
            assert not transactions.is_verified(partition, 7, 0)

    asyncio.run(check())


def test_batch_does_not_verify_later_batches_when_a_marker_arrives_during_its_append(
    transactions: Transactions, partition: Any
) -> None:
    async def check() -> None:
        async def end() -> None:
            async with transactions.ending(partition, 7):
                pass

        async with transactions.checking(partition, 7) as check:
            async with check.appending:
                marker = asyncio.ensure_future(end())
                await asyncio.sleep(0)
                assert check.marked
                transactions.appended(check, 7, 0)
            await marker
        assert not transactions.is_verified(partition, 7, 0)

    asyncio.run(check())


def test_batch_does_not_verify_later_batches_when_the_leadership_ended_during_its_append(
    transactions: Transactions, partition: Any
) -> None:
    check = Check(partition)
    partition.generation += 2  # lost, and won again
    transactions.appended(check, 7, 0)
    assert not transactions.is_verified(partition, 7, 0)


def test_batch_waits_when_an_earlier_one_was_not_verified(transactions: Transactions, partition: Any) -> None:
    for sequence in (10, 0, 20):
        transactions.verifying(partition, 7, 0, sequence)
    assert [transactions.overtakes(partition, 7, 0, each) for each in (0, 10, 20)] == [False, True, True]
    assert not transactions.is_verified(partition, 7, 0)
    assert not transactions.overtakes(partition, 8, 0, 10), "another producer"
    transactions.appended(Check(partition), 7, 0)
    assert not transactions.overtakes(partition, 7, 0, 10)
    assert transactions.is_verified(partition, 7, 0)


def test_batch_waits_no_longer_when_a_marker_arrives(transactions: Transactions, partition: Any) -> None:
    async def end() -> None:
        async with transactions.ending(partition, 7):
            pass

    transactions.verifying(partition, 7, 0, 0)
    asyncio.run(end())
    assert not transactions.overtakes(partition, 7, 0, 10)


def test_next_transaction_does_not_wait_for_a_late_batch_when_that_came_during_the_append_of_a_marker(
    transactions: Transactions, partition: Any
) -> None:
    async def end() -> None:
        async with transactions.ending(partition, 7):
            transactions.verifying(partition, 7, 0, 10)

    asyncio.run(end())
    assert not transactions.overtakes(partition, 7, 0, 20)


def test_batch_waits_only_for_batches_of_its_own_epoch_and_leadership(
    transactions: Transactions, partition: Any
) -> None:
    transactions.verifying(partition, 7, 3, 5)
    transactions.verifying(partition, 7, 2, 0)
    assert not transactions.overtakes(partition, 7, 3, 5), "a batch of an older epoch changed the order"
    transactions.verifying(partition, 7, 4, 10)
    assert [transactions.overtakes(partition, 7, 4, each) for each in (10, 20)] == [False, True]
    partition.generation += 1
    assert not transactions.overtakes(partition, 7, 4, 20)
    transactions.verifying(partition, 7, 4, 20)
    assert not transactions.overtakes(partition, 7, 4, 20)


def test_verified_producer_stays_verified_when_an_older_epoch_asks(transactions: Transactions, partition: Any) -> None:
    transactions.appended(Check(partition), 7, 3)
    transactions.verifying(partition, 7, 2, 0)
    assert transactions.is_verified(partition, 7, 3)


def test_partitions_are_let_go_when_their_leaderships_have_ended(transactions: Transactions) -> None:
    partitions: list[Any] = [Led() for _ in range(5000)]
    gone = [weakref.ref(each) for each in partitions[1:]]
    for each in partitions:
        transactions.appended(Check(each), 7, 0)
        transactions.verifying(each, 8, 0, 0)
    for each in partitions[1:]:
        each.generation = 4  # the partition was deleted, or another broker leads it
    kept = partitions[0]
    del partitions, each
    for producer_id in range(8000):
        transactions.appended(Check(kept), producer_id, 0)
    assert not any(each() for each in gone)
    assert all(transactions.is_verified(kept, producer_id, 0) for producer_id in range(8000))


def test_verified_producers_are_verified_again_when_there_are_too_many(
    transactions: Transactions, partition: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkacore.server.transactions.MOST_KNOWN", 3000)
    for producer_id in range(3001):
        transactions.appended(Check(partition), producer_id, 0)
    assert [transactions.is_verified(partition, each, 0) for each in (0, 2999, 3000)] == [False, False, True]


@pytest.mark.parametrize(("produce", "is_refused"), [(ADDS_SINCE - 1, False), (ADDS_SINCE, True)])
def test_batch_is_refused_when_the_coordinator_cannot_add_its_partition(
    transactions: Transactions, monkeypatch: pytest.MonkeyPatch, produce: int, is_refused: bool
) -> None:
    async def send(*_: object) -> None:
        raise UnsupportedVersionError("AddPartitionsToTxn is unknown")

    endpoint = SimpleNamespace(host="h", port=1)
    node = SimpleNamespace(endpoint=lambda listener: endpoint)
    monkeypatch.setattr("kafkacore.server.transactions.coordinator_of", lambda image, count, name: 2)
    monkeypatch.setattr(transactions, "_read_image", lambda: SimpleNamespace(brokers={2: node}))
    monkeypatch.setattr(transactions._lane, "send", send)
    refused = asyncio.run(transactions.verify("id", 7, 0, [("t", 0)], produce))
    assert {each.error for each in refused.values()} == ({ErrorCode.NOT_ENOUGH_REPLICAS} if is_refused else set())


@pytest.mark.parametrize(
    ("error", "produce", "expected"),
    [
        (ErrorCode.CONCURRENT_TRANSACTIONS, ADDS_SINCE, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ADDS_SINCE - 1, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, ADDS_SINCE, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.PRODUCER_FENCED, ADDS_SINCE, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, ABORTABLE_SINCE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, ABORTABLE_SINCE - 1, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_producer_gets_an_error_that_its_version_handles(error: ErrorCode, produce: int, expected: ErrorCode) -> None:
    assert refusal_of(error, produce).error == expected
