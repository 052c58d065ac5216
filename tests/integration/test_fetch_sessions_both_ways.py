"""A consumer's fetch session continues when its requests move from native processors to a Python handler and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from both_ways import Both
from kafkacore._fast.plane.gate import GatePolicy
from kafkacore.protocol.messages import FetchRequest, FetchResponse

FETCH_SESSION_ID_NOT_FOUND = 70
VERSION = 12


@pytest.fixture
def broker(tmp_path: Any) -> Iterator[Both]:
    made = Both(tmp_path)
    try:
        made.started.create("t", 2)
        yield made
    finally:
        made.close()


def fetch(broker: Both, session_id: int, epoch: int, *, whole: bool = False) -> tuple[int, int, list[int]]:
    """Returns the error, the session id, and the partitions in the response."""
    parts = [FetchRequest.FetchPartition(partition=index, partition_max_bytes=1000) for index in range(2)]
    topics = [FetchRequest.FetchTopic(topic="t", partitions=parts)] if whole else []
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1000, session_id=session_id, session_epoch=epoch, topics=topics
    )
    answer = FetchResponse.decode(broker.ask(request, VERSION)[5:], VERSION)
    named = [part.partition_index for topic in answer.responses for part in topic.partitions]
    return answer.error_code, answer.session_id, named


def test_session_ends_once_when_a_handler_serves_it_and_a_processor_starts_a_new_one(broker: Both) -> None:
    error, session, named = fetch(broker, 0, 0, whole=True)
    assert (error, named) == (0, [0, 1])
    assert session
    assert fetch(broker, session, 1) == (0, session, [])
    sessions = broker.started.broker.context.fetch_sessions
    assert len(sessions) == 1
    broker.gate(GatePolicy("punt"))
    assert fetch(broker, session, 2) == (FETCH_SESSION_ID_NOT_FOUND, 0, [])
    assert len(sessions) == 0
    for _ in range(2):
        assert fetch(broker, 0, 0, whole=True) == (0, 0, [0, 1])
    broker.gate(None)
    error, session, named = fetch(broker, 0, 0, whole=True)
    assert (error, named) == (0, [0, 1])
    assert session
    assert fetch(broker, session, 1) == (0, session, [])


@pytest.mark.parametrize(("session_id", "epoch"), [(0, 5), (0, -2), (77, 5), (77, -2), (77, 0), (77, -1), (0, -1)])
def test_unknown_session_gets_the_same_answer_from_processor_and_handler(
    broker: Both, session_id: int, epoch: int
) -> None:
    broker.gate(None)
    native = fetch(broker, session_id, epoch, whole=True)
    broker.gate(GatePolicy("punt"))
    error, _, named = fetch(broker, session_id, epoch, whole=True)
    assert (error, named) == (native[0], native[2])
    assert error == (0 if epoch in (0, -1) else FETCH_SESSION_ID_NOT_FOUND)
