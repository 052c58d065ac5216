"""When a handler has answered a Metadata request, native processors repeat the same answer until its content
changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from both_ways import Both
from kafkacore.network import cached_answers
from kafkacore.network.cached_answers import ApiCache
from kafkacore.protocol.messages import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    MetadataRequest,
    MetadataResponse,
    PartitionChangeRecord,
    RemoveTopicRecord,
)
from kafkacore.runtime import slices

VERSIONS = range(14)
FLEXIBLE = 9


@pytest.fixture
def broker(tmp_path: Any) -> Iterator[Both]:
    made = Both(tmp_path)
    try:
        made.started.create("t", 3)
        made.started.create("u")
        yield made
    finally:
        made.close()


def asked(*names: str, **fields: Any) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names], **fields)


def decoded(frame: bytes, version: int = 9) -> Any:
    return MetadataResponse.decode(frame[5 if version >= FLEXIBLE else 4 :], version)


def commit(broker: Both, *records: Any) -> None:
    async def committed() -> None:
        broker.started.records.commit(*records)

    broker.started.loop.run(committed(), 10)


def is_served(broker: Both, request: MetadataRequest, version: int = 9) -> bool:
    """Returns whether a native processor answers the request, without a handler."""
    before = broker.handled
    broker.ask(request, version)
    return broker.handled == before


@pytest.mark.parametrize("version", VERSIONS)
def test_processor_gives_the_bytes_of_the_handler_when_a_request_repeats(broker: Both, version: int) -> None:
    requests = [asked("t"), asked("u", "t")]
    if version >= 1:
        requests.append(MetadataRequest(topics=None))
    if version >= 10:
        topic_id = decoded(broker.ask(asked("t"), 12), 12).topics[0].topic_id
        requests.append(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=None, topic_id=topic_id)]))
        requests[-1] = requests[-1] if version >= 12 else requests[0]
    for request in requests:
        broker.ask(request, version)
        _, served = broker.both(request, version)
        assert served
        broker.gate(None)


def test_answer_has_the_correlation_id_of_the_current_request(broker: Both) -> None:
    first = broker.ask(asked("t"), 9, correlation_id=7)
    before = broker.handled
    second = broker.ask(asked("t"), 9, correlation_id=-2)
    assert broker.handled == before
    assert second == (-2).to_bytes(4, "big", signed=True) + first[4:]


def test_different_request_is_not_answered_from_the_cache(broker: Both) -> None:
    broker.ask(asked("t"), 9)
    assert not is_served(broker, asked("u"))
    assert not is_served(broker, asked("t"), 8)
    assert not is_served(broker, asked("t", include_topic_authorized_operations=True))
    assert is_served(broker, asked("t"))


def test_unknown_topic_is_looked_up_every_time(broker: Both) -> None:
    request = asked("t", "later", allow_auto_topic_creation=False)
    broker.ask(request, 9)
    assert not is_served(broker, request)
    broker.started.create("later")
    assert [topic.error_code for topic in decoded(broker.ask(request, 9)).topics] == [0, 0]


def test_next_request_sees_a_change(broker: Both) -> None:
    topic_id = decoded(broker.ask(asked("t"), 12), 12).topics[0].topic_id
    for change, leader in (
        (PartitionChangeRecord(topic_id=topic_id, partition_id=1, leader=-1), -1),
        (PartitionChangeRecord(topic_id=topic_id, partition_id=1, leader=1), 1),
    ):
        broker.ask(asked("t"), 9)
        assert is_served(broker, asked("t"))
        commit(broker, change)
        frame, served = broker.both(asked("t"), 9)
        assert not served
        broker.gate(None)
        assert decoded(frame).topics[0].partitions[1].leader_id == leader
    commit(broker, RemoveTopicRecord(topic_id=topic_id))
    assert decoded(broker.ask(asked("t", allow_auto_topic_creation=False), 9)).topics[0].error_code == 3


def test_fenced_broker_changes_every_answer(broker: Both) -> None:
    everything = MetadataRequest(topics=None)
    for request in (asked("t"), everything):
        broker.ask(request, 9)
        assert is_served(broker, request)
    commit(broker, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=0, fenced=1))
    for request in (asked("t"), everything):
        frame = broker.ask(request, 9)
        assert decoded(frame).brokers == []


def test_only_answers_that_depend_on_a_change_are_made_again(broker: Both) -> None:
    everything = MetadataRequest(topics=None)
    for request in (asked("t"), asked("u"), everything):
        broker.ask(request, 9)
    commit(broker, ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1"))
    assert is_served(broker, asked("t")) and is_served(broker, asked("u")) and is_served(broker, everything)
    broker.started.create("another")
    assert is_served(broker, asked("t")) and is_served(broker, asked("u"))
    assert not is_served(broker, everything)
    topic_id = decoded(broker.ask(asked("t"), 12), 12).topics[0].topic_id
    commit(broker, PartitionChangeRecord(topic_id=topic_id, partition_id=0, isr=[]))
    assert is_served(broker, asked("u"))
    assert not is_served(broker, asked("t"))


def test_processor_repeats_the_answer_when_the_handler_worked_in_slices(
    broker: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    for request in (asked("u", "t"), MetadataRequest(topics=None)):
        broker.ask(request, 9)
        assert is_served(broker, request)


def test_answer_is_not_repeated_when_the_metadata_changed_while_the_handler_worked(
    broker: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_id = decoded(broker.ask(asked("t"), 12), 12).topics[0].topic_id
    keep = ApiCache.keep

    def keep_late(cache: ApiCache, plane: Any, *arguments: Any) -> None:
        broker.started.records.commit(PartitionChangeRecord(topic_id=topic_id, partition_id=1, leader=-1))
        keep(cache, plane, *arguments)

    monkeypatch.setattr(ApiCache, "keep", keep_late)
    broker.ask(asked("t"), 9)
    monkeypatch.undo()
    assert decoded(broker.ask(asked("t"), 9)).topics[0].partitions[1].leader_id == -1
    assert is_served(broker, asked("t"))


def test_cache_is_bounded(broker: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_answers, "MAX_ANSWERS", 2)
    for version in (5, 6):
        broker.ask(asked("t"), version)
        assert is_served(broker, asked("t"), version)
    broker.ask(asked("t"), 7)
    assert is_served(broker, asked("t"), 7)
    assert not is_served(broker, asked("t"), 5)  # this answer was evicted to make room for others
    monkeypatch.setattr(cached_answers, "MAX_BYTES", 10)
    broker.ask(asked("t"), 8)
    assert not is_served(broker, asked("t"), 8)
    monkeypatch.undo()
    long = asked(*["t"] * cached_answers.ASKED_LIMIT)
    broker.ask(long, 9)
    assert not is_served(broker, long)
