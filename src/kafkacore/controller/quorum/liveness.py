"""When each broker sent its last heartbeat, and how far it has read: facts, not decisions, and so no records.

They are kept outside the queue of decisions. A busy controller counts the heartbeats that still wait, so it never
fences a broker for its own slowness (KAFKA-15019).
"""

from __future__ import annotations

import heapq
from typing import Final

NEVER: Final = -1
PULSES_PER_SESSION: Final = 8


class HearingTime:
    """The time during which this controller could hear, in ms. It is monotonic time without the gaps.

    The owner calls `at` at least once in each `pulse_ms`. When a call comes later, the controller did not run, or
    somebody has moved its clock: only one pulse of such a gap counts. So nobody is fenced for a silence that no one
    could have heard.
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
        """As `at`, and changes nothing."""
        if self._last_ms is None:
            return self._heard_ms
        return self._heard_ms + min(max(now_ms - self._last_ms, 0), self.pulse_ms)


class Contact:
    """`heard`: a heartbeat came while this controller is active; else the broker is only assumed to live. Others must
    have read up to `shutdown_offset` before the broker may leave. `last_ms` is hearing time."""

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
        # One entry for each contact, with the earliest end of its session. A heartbeat leaves the entry in place;
        # `expired` moves it when that time has come.
        self._ends: list[tuple[int, int, Contact]] = []
        self._entries = 0

    @property
    def pulse_ms(self) -> int:
        """The longest time between two calls of `expired` that counts as hearing time."""
        return self._time.pulse_ms

    def registered(self, broker_id: int, epoch: int, now_ms: int, leaving: bool = False) -> None:
        """A broker is in the image at `epoch`, and its session begins. `leaving`: it is in controlled shutdown."""
        known = self._contacts.get(broker_id)
        if known is None or known.epoch != epoch:
            contact = self._contacts[broker_id] = Contact(broker_id, epoch, self._time.at(now_ms))
            self._push(contact.last_ms + self.session_timeout_ms, contact)
        elif not leaving:
            known.shutdown_offset = NEVER

    def gone(self, broker_id: int) -> None:
        self._contacts.pop(broker_id, None)

    def heard(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """A heartbeat has arrived; it may still wait for its decision."""
        contact = self._contacts.get(broker_id)
        if contact is not None and contact.epoch == epoch:
            contact.last_ms, contact.heard = self._time.at(now_ms), True

    def has_session(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        """Whether this incarnation has sent a heartbeat in time. A new controller has not heard from any broker yet.
        So a broker that restarts together with it need not wait until the session of its former incarnation ends."""
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
        """Milliseconds until `expired` must be called again: when the next session may end, and in each pulse."""
        time_ms = self._time.at(now_ms)
        until_end = self._ends[0][0] - time_ms if self._ends else self._time.pulse_ms
        return max(0, min(until_end, self._time.pulse_ms))

    def expired(self, now_ms: int) -> list[tuple[int, int]]:
        """Id and epoch of the brokers whose session is over, sorted by id. Each pulse returns a broker again until
        it is `gone` or heard."""
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
            # The next pulse returns it again, in case it cannot be fenced now.
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
        """Records up to `offset` moved the leaderships of a broker."""
        contact = self._contacts.get(broker_id)
        if contact is not None and contact.shutdown_offset == NEVER:
            contact.shutdown_offset = offset

    def may_leave(self, broker_id: int, active: set[int]) -> bool:
        """Whether the brokers that stay have read of the new leaders."""
        contact = self._contacts.get(broker_id)
        if contact is None:
            return True
        others = [
            self._contacts[each].metadata_offset for each in active if each != broker_id and each in self._contacts
        ]
        return all(offset >= contact.shutdown_offset for offset in others)
