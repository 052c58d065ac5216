"""Faults that a test creates: their kinds, the requests that they affect, and how often they have happened."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, Self

from kafkacore.network.request import RequestContext
from kafkacore.protocol import apis
from kafkacore.protocol.apis import Api, ApiKey
from kafkacore.protocol.errors import ErrorCode, ProtocolError

# The APIs that a fault can refuse by topic. Each value names the field of the topics in the request and in the
# response.
TOPIC_LISTS: Final = {
    ApiKey.PRODUCE: ("topic_data", "responses"),
    ApiKey.FETCH: ("topics", "responses"),
    ApiKey.LIST_OFFSETS: ("topics", "topics"),
    ApiKey.METADATA: ("topics", "topics"),
    ApiKey.OFFSET_COMMIT: ("topics", "topics"),
    ApiKey.CREATE_TOPICS: ("topics", "topics"),
    ApiKey.CREATE_PARTITIONS: ("topics", "results"),
    ApiKey.DELETE_RECORDS: ("topics", "topics"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ("topics", "topics"),
}


class Fault:
    """A fault. It ends when it has happened `times` times, when `end` is called, or at the end of its `with` block."""

    def __init__(
        self,
        what: str,
        api: Api | None,
        *,
        times: int | None = None,
        topic: str | None = None,
        client_id: str | None = None,
        on_end: Callable[[Fault], None] = lambda fault: None,
    ) -> None:
        """Raises ValueError if `times` is less than one, or if `topic` is given for an API whose requests have no
        topics."""
        if times is not None and times < 1:
            raise ValueError(
                f"`times` is {times}, but a fault happens at least once; leave `times` out to make it happen always"
            )
        if topic is not None and api is not None and api.key not in TOPIC_LISTS:
            able = ", ".join(apis.api(key).message for key in TOPIC_LISTS)
            raise ValueError(f"{api.message} cannot fail by topic; leave `topic` out, or use one of: {able}")
        self.what = what
        self.api = api
        self.times = times
        self.topic = topic
        self.client_id = client_id
        self._on_end = on_end
        self._changed = threading.Condition()
        self._hits = 0
        self._ended = False

    @property
    def hits(self) -> int:
        """The number of times that the fault has happened."""
        return self._hits

    @property
    def is_ended(self) -> bool:
        """Returns whether `end` was called. Returns False for a fault that is over only because it has happened `times`
        times."""
        return self._ended

    @property
    def is_over(self) -> bool:
        return self._ended or (self.times is not None and self.hits >= self.times)

    def end(self) -> None:
        """Ends the fault. Idempotent."""
        with self._changed:
            if self._ended:
                return
            self._ended = True
            self._changed.notify_all()
        self._on_end(self)

    def wait_for_hits(self, count: int = 1, timeout_seconds: float = 5.0) -> None:
        """Waits until the fault has happened `count` times. Raises TimeoutError."""
        until = time.monotonic() + timeout_seconds
        with self._changed:
            while self._hits < count:
                left = until - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"{self!r}: did not happen {count} times within {timeout_seconds:g} s")
                self._changed.wait(left)

    def take(self) -> bool:
        """Counts one more hit. Returns False if the fault has ended."""
        with self._changed:
            if self.is_over:
                return False
            self._hits += 1
            self._changed.notify_all()
            return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def __repr__(self) -> str:
        limits = [f"{name}={value!r}" for name in ("topic", "client_id") if (value := getattr(self, name)) is not None]
        often = f"{self.hits} hits" if self.times is None else f"{self.hits} of {self.times} hits"
        return f"<{' '.join([self.what, *limits])}: {often}{', over' if self.is_over else ''}>"


class RequestFault(Fault):
    """A fault of requests."""

    def __init__(
        self,
        what: str,
        api: Api | None,
        *,
        waits_seconds: float = 0.0,
        error: ErrorCode | None = None,
        drops: str | None = None,
        torn_bytes: int | None = None,
        **limits: Any,
    ) -> None:
        """`waits_seconds` delays the request; the broker's clock measures the delay. `error` replaces the handlers'
        response. `drops` closes the connection "before" or "after" the request is handled. If `torn_bytes` is set, only
        this number of bytes of the response is sent."""
        super().__init__(what, api, **limits)
        self.waits_seconds = waits_seconds
        self.error = error
        self.drops = drops
        self.torn_bytes = torn_bytes
        # The functions in this list wake the requests that wait for the end of the fault. Only the loop uses the list.
        self.waiting: list[Callable[[], None]] = []

    @property
    def decides(self) -> bool:
        """Returns whether this fault excludes other faults for the same request. A delay does not, because delays add
        up."""
        return not self.waits_seconds

    def fits(self, call: RequestContext, topics: Callable[[], list[str]]) -> bool:
        """Returns whether the fault applies to the client and the `topics` of this request."""
        if self.is_over or (self.api is not None and self.api.key != call.api_key):
            return False
        if self.client_id is not None and self.client_id != call.client_id:
            return False
        return self.topic is None or self.topic in topics()


def named_topics(request: Any, name_of: Callable[[Any], str | None]) -> list[str]:
    """Returns the topics of a request for an API in TOPIC_LISTS. `name_of` maps topic ids to names."""
    field, _ = TOPIC_LISTS[request.API_KEY]
    return [name for each in getattr(request, field) or () if (name := topic_name(each, name_of))]


def topic_name(entry: Any, name_of: Callable[[Any], str | None]) -> str | None:
    name: str | None = getattr(entry, "name", None) or getattr(entry, "topic", None)
    topic_id = getattr(entry, "topic_id", None)
    return name or (name_of(topic_id) if topic_id else None)


class Dropped(ProtocolError):
    """The connection is closed because a test created a fault."""
