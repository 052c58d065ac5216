"""When each broker sent its last heartbeat, and how far it has read the metadata. These are facts and not decisions, so
no record holds them.

They are noted before a heartbeat waits for its decision. So a busy controller never fences a broker because the
controller itself is slow (KAFKA-15019).
"""

from __future__ import annotations

import heapq
from typing import Final

NEVER: Final = -1
PULSES_PER_SESSION: Final = 8


class HearingTime:
    """The time during which this controller could receive heartbeats, in ms: monotonic time without the gaps in which
    the controller did not run.

    The owner calls `at` at least once in each `pulse_ms`. When a call comes later, the controller did not run, or its
    clock was moved; only one pulse of such a gap counts. So no broker is fenced for heartbeats that the controller
    could not receive.
    """

    __slots__ = ("_heard_ms", "_last_ms", "pulse_ms")

    def __init__(self, pulse_ms: int) -> None:
        self.pulse_ms = pulse_ms
        self._heard_ms = 0
        self._last_ms: int | None = None

    def at(self, now_ms: int) -> int:
        self._heard_ms, self._last_ms = self.peek(now_ms), now_ms
        return self._heard_ms

    def peek(self, now_ms: int) -> int:
        """As `at`, but changes nothing."""
        if self._last_ms is None:
            return self._heard_ms
        return self._heard_ms + min(max(now_ms - self._last_ms, 0), self.pulse_ms)


class Contact:
    """One broker. `heard` is True after a heartbeat to this controller while it is active; until then the broker is
    only assumed to live. Other brokers must have read up to `shutdown_offset` before this one may leave. `last_ms` is
    hearing time."""

    __slots__ = ("broker_id", "epoch", "heard", "last_ms", "metadata_offset", "shutdown_offset")

    def __init__(self, broker_id: int, epoch: int, last_ms: int) -> None:
        self.broker_id = broker_id
        self.epoch = epoch
        self.last_ms = last_ms
        self.heard = False
        self.metadata_offset = self.shutdown_offset = NEVER


class Liveness:
    """State of an active controller. The times of calls are monotonic milliseconds."""

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._time = HearingTime(max(1, session_timeout_ms // PULSES_PER_SESSION))
        self._contacts: dict[int, Contact] = {}
        # One entry for each contact, with the earliest end of its session. A heartbeat does not move the entry;
        # `expired` moves it when its time has come.
        self._ends: list[tuple[int, int, Contact]] = []
        self._entries = 0

    @property
    def pulse_ms(self) -> int:
        """The longest time between two calls of `expired` that counts as hearing time."""
        return self._time.pulse_ms

    def registered(self, broker_id: int, epoch: int, now_ms: int, leaving: bool = False) -> None:
        """Begins the session of a broker that the image has with this epoch. `leaving` says that it is in controlled
        shutdown."""
        known = self._contacts.get(broker_id)
        if known is None or known.epoch != epoch:
            contact = self._contacts[broker_id] = Contact(broker_id, epoch, self._time.at(now_ms))
            self._push(contact.last_ms + self.session_timeout_ms, contact)
        elif not leaving:
            known.shutdown_offset = NEVER

    def gone(self, broker_id: int) -> None:
        self._contacts.pop(broker_id, None)

    def heard(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """Notes that a heartbeat has arrived; it may still wait for its decision."""
        contact = self._contacts.get(broker_id)
        if contact is not None and contact.epoch == epoch:
            contact.last_ms, contact.heard = self._time.at(now_ms), True

    def has_session(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        """Whether this incarnation has sent a heartbeat in time. A new controller has not heard from any broker yet. So
        a broker that restarts together with the controller need not wait for the end of its former session."""
        contact = self._contacts.get(broker_id)
        return (
            contact is not None and contact.heard and contact.epoch == epoch
            and self._time.at(now_ms) - contact.last_ms < self.session_timeout_ms
        )  # fmt: skip

    def silences(self, now_ms: int) -> dict[int, int]:
        """Milliseconds since the last heartbeat of each broker. Any thread may ask."""
        time_ms = self._time.peek(now_ms)
        return {each.broker_id: max(time_ms - each.last_ms, 0) for each in list(self._contacts.values())}

    def wait_ms(self, now_ms: int) -> int:
        """Milliseconds until `expired` must be called again: when the next session may end, and at least once in each
        pulse."""
        time_ms = self._time.at(now_ms)
        until_end = self._ends[0][0] - time_ms if self._ends else self._time.pulse_ms
        return max(0, min(until_end, self._time.pulse_ms))

    def expired(self, now_ms: int) -> list[tuple[int, int]]:
        """Id and epoch of the brokers whose session is over, sorted by id. Calls in later pulses return a broker again
        until `gone` or `heard` is called for it."""
        time_ms = self._time.at(now_ms)
        over: list[Contact] = []
        while self._ends and self._ends[0][0] <= time_ms:
            contact = heapq.heappop(self._ends)[2]
            if self._contacts.get(contact.broker_id) is not contact:
                continue
            end_ms = contact.last_ms + self.session_timeout_ms
            if end_ms > time_ms:
                self._push(end_ms, contact)
            else:
                over.append(contact)
        for contact in over:
            # A call in the next pulse returns the broker again, in case it cannot be fenced now.
            self._push(time_ms + self._time.pulse_ms, contact)
        return sorted((contact.broker_id, contact.epoch) for contact in over)

    def _push(self, end_ms: int, contact: Contact) -> None:
        self._entries += 1
        heapq.heappush(self._ends, (end_ms, self._entries, contact))

    def read_up_to(self, broker_id: int, offset: int) -> None:
        contact = self._contacts.get(broker_id)
        if contact is not None:
            contact.metadata_offset = offset

    def leaves_after(self, broker_id: int, offset: int) -> None:
        """Notes that records up to `offset` have given a broker's partitions to other leaders."""
        contact = self._contacts.get(broker_id)
        if contact is not None and contact.shutdown_offset == NEVER:
            contact.shutdown_offset = offset

    def may_leave(self, broker_id: int, active: set[int]) -> bool:
        """Whether the brokers that stay have read the records with the new leaders."""
        contact = self._contacts.get(broker_id)
        if contact is None:
            return True
        others = [
            self._contacts[each].metadata_offset for each in active if each != broker_id and each in self._contacts
        ]
        return all(offset >= contact.shutdown_offset for offset in others)
