"""Stores the time of each broker's last heartbeat, and how far the broker has read the metadata. Only the active
controller has this state. No record contains it, because heartbeats are facts and not decisions.

The time of a heartbeat is stored on arrival, before the heartbeat waits for a decision. So a slow controller does not
count its own delay as the silence of a broker (KAFKA-15019).
"""

from __future__ import annotations

import heapq
from typing import Final

NEVER: Final = -1
PULSES_PER_SESSION: Final = 8


class HearingTime:
    """How long this controller could receive heartbeats, in ms: monotonic time minus the time in which the controller
    did not run.

    The owner calls `at` at least once every `pulse_ms`. A longer gap between two calls means that the controller did
    not run, or that its clock was moved. Only `pulse_ms` of the gap are counted, so no broker is fenced for heartbeats
    that the controller could not receive.
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
        """Returns what `at` would return, but changes nothing."""
        if self._last_ms is None:
            return self._heard_ms
        return self._heard_ms + min(max(now_ms - self._last_ms, 0), self.pulse_ms)


class Contact:
    """The contact with one broker. `heard` is True after a heartbeat that arrived while this controller was active.
    Until then, the controller assumes that the broker is alive. A broker in controlled shutdown can stop when the other
    brokers have read the metadata up to `shutdown_offset`. `last_ms` is the HearingTime of the broker's last
    heartbeat."""

    __slots__ = ("broker_id", "epoch", "heard", "last_ms", "metadata_offset", "shutdown_offset")

    def __init__(self, broker_id: int, epoch: int, last_ms: int) -> None:
        self.broker_id = broker_id
        self.epoch = epoch
        self.last_ms = last_ms
        self.heard = False
        self.metadata_offset = self.shutdown_offset = NEVER


class Liveness:
    """The contacts of an active controller. The times passed to its methods are monotonic milliseconds."""

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._time = HearingTime(max(1, session_timeout_ms // PULSES_PER_SESSION))
        self._contacts: dict[int, Contact] = {}
        # A heap with one entry for each contact: the earliest time at which its session can expire. A heartbeat does
        # not change the entry. When that time has passed, `expired` replaces the entry by a later one.
        self._ends: list[tuple[int, int, Contact]] = []
        self._entries = 0

    @property
    def pulse_ms(self) -> int:
        """HearingTime counts at most this much of the time between two calls of `expired`."""
        return self._time.pulse_ms

    def registered(self, broker_id: int, epoch: int, now_ms: int, leaving: bool = False) -> None:
        """Starts the session of a broker that is registered with this epoch in the image. `leaving` says that the
        broker is in controlled shutdown."""
        known = self._contacts.get(broker_id)
        if known is None or known.epoch != epoch:
            contact = self._contacts[broker_id] = Contact(broker_id, epoch, self._time.at(now_ms))
            self._push(contact.last_ms + self.session_timeout_ms, contact)
        elif not leaving:
            known.shutdown_offset = NEVER

    def gone(self, broker_id: int) -> None:
        self._contacts.pop(broker_id, None)

    def heard(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """Notes that a heartbeat has arrived, even if the controller decides about it later."""
        contact = self._contacts.get(broker_id)
        if contact is not None and contact.epoch == epoch:
            contact.last_ms, contact.heard = self._time.at(now_ms), True

    def has_session(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        """Returns whether this incarnation of the broker has sent this controller a heartbeat in time. A controller
        that has just become active has received no heartbeat yet. So if a broker restarts together with the controller,
        the broker's former incarnation has no session, and the broker can register at once."""
        contact = self._contacts.get(broker_id)
        return (
            contact is not None and contact.heard and contact.epoch == epoch
            and self._time.at(now_ms) - contact.last_ms < self.session_timeout_ms
        )  # fmt: skip

    def silences(self, now_ms: int) -> dict[int, int]:
        """Returns milliseconds since the last heartbeat of each broker. Can be called on any thread."""
        time_ms = self._time.peek(now_ms)
        return {each.broker_id: max(time_ms - each.last_ms, 0) for each in list(self._contacts.values())}

    def wait_ms(self, now_ms: int) -> int:
        """Returns the milliseconds until the next session can expire, but at most `pulse_ms`. After this time the owner
        must call `expired` again."""
        time_ms = self._time.at(now_ms)
        until_end = self._ends[0][0] - time_ms if self._ends else self._time.pulse_ms
        return max(0, min(until_end, self._time.pulse_ms))

    def expired(self, now_ms: int) -> list[tuple[int, int]]:
        """Returns the ids and epochs of the brokers whose sessions have expired, sorted by id. Later calls return a
        broker again until `gone` or `heard` is called for it."""
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
            # If the broker cannot be fenced now, a call after another pulse returns the broker again.
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
        """Notes that the log up to `offset` contains the elections of other leaders for the broker's partitions."""
        contact = self._contacts.get(broker_id)
        if contact is not None and contact.shutdown_offset == NEVER:
            contact.shutdown_offset = offset

    def may_leave(self, broker_id: int, active: set[int]) -> bool:
        """Returns whether the remaining brokers have read the records that make them the new leaders."""
        contact = self._contacts.get(broker_id)
        if contact is None:
            return True
        others = [
            self._contacts[each].metadata_offset for each in active if each != broker_id and each in self._contacts
        ]
        return all(offset >= contact.shutdown_offset for offset in others)
