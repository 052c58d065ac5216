"""Holds the outgoing messages of a replica. Each message waits until the epoch, vote or records that it depends on are
on disk (Raft dissertation, 10.2.1)."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from kafkacore.protocol.messages import Message
from kafkacore.raft.requests import Requests
from kafkacore.raft.roles import Destination
from kafkacore.raft.syncs import Syncs
from kafkacore.raft.term import Term


class Send(NamedTuple):
    """A request to send. Its response arrives with `correlation`."""

    to: Destination
    correlation: int
    request: Message


class Answer(NamedTuple):
    """A response to the request that was received with `token`."""

    token: Any
    response: Message


class _Held(NamedTuple):
    output: Send | Answer
    term_version: int
    synced_offset: int


class Outbox:
    def __init__(self, term: Term, syncs: Syncs, requests: Requests) -> None:
        self._term, self._syncs, self._requests = term, syncs, requests
        self._held: deque[_Held] = deque()

    def answer(self, token: Any, response: Message) -> None:
        """Queues a response, which can be sent when the current epoch and vote are on disk."""
        self._held.append(_Held(Answer(token, response), self._term.required, 0))

    def send(self, to: Destination, request: Message, now_ms: int, synced_offset: int = 0) -> None:
        """Queues a request, which can be sent when the current epoch and vote are on disk and the log is durable up to
        `synced_offset`.
        """
        correlation = self._requests.begin(to, request, now_ms)
        self._held.append(_Held(Send(to, correlation, request), self._term.required, synced_offset))

    def take(self) -> list[Send | Answer]:
        """Returns the messages that can be sent now, in order. Drops requests that the replica gave up before sending
        them.
        """
        ready: list[Send | Answer] = []
        kept: deque[_Held] = deque()
        for held in self._held:
            if isinstance(held.output, Send) and not self._requests.waits(held.output.correlation):
                continue
            if self._term.has(held.term_version) and held.synced_offset <= self._syncs.durable_offset:
                ready.append(held.output)
            else:
                kept.append(held)
        self._held = kept
        return ready
