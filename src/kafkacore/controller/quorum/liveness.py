"""When each broker sent its last heartbeat, and how far it has read: facts, not decisions, and so no records.

They are kept outside the queue of decisions. A busy controller counts the heartbeats that still wait, so it never
fences a broker for its own slowness (KAFKA-15019).
"""

from __future__ import annotations

from typing import Final

NEVER: Final = -1
CHECKS_PER_SESSION: Final = 8


class Contact:
    """`heard`: a heartbeat came while this controller is active; else the broker is only assumed to live. Others must
    have read up to `shutdown_offset` before the broker may leave."""

    __slots__ = ("epoch", "heard", "last_ms", "metadata_offset", "shutdown_offset")

    def __init__(self, epoch: int, last_ms: int) -> None:
        self.epoch = epoch
        self.last_ms = last_ms
        self.heard = False
        self.metadata_offset = self.shutdown_offset = NEVER


class Liveness:
    """State of an active controller. Times are monotonic milliseconds."""

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._contacts: dict[int, Contact] = {}
        self._checked_ms = NEVER

    @property
    def check_interval_ms(self) -> int:
        return max(1, self.session_timeout_ms // CHECKS_PER_SESSION)

    def registered(self, broker_id: int, epoch: int, now_ms: int, leaving: bool = False) -> None:
        """A broker is in the image at `epoch`, and its session begins. `leaving`: it is in controlled shutdown."""
        known = self._contacts.get(broker_id)
        if known is None or known.epoch != epoch:
            self._contacts[broker_id] = Contact(epoch, now_ms)
        elif not leaving:
            known.shutdown_offset = NEVER

    def gone(self, broker_id: int) -> None:
        self._contacts.pop(broker_id, None)

    def heard(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """A heartbeat has arrived; it may still wait for its decision."""
        contact = self._contacts.get(broker_id)
        if contact is not None and contact.epoch == epoch:
            contact.last_ms, contact.heard = now_ms, True

    def has_session(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        """Whether this incarnation has sent a heartbeat in time. A new controller has heard of no broker yet: a broker
        that was restarted with it does not wait for the session of its last incarnation."""
        contact = self._contacts.get(broker_id)
        return (
            contact is not None and contact.heard and contact.epoch == epoch
            and now_ms - contact.last_ms < self.session_timeout_ms
        )  # fmt: skip

    def expired(self, now_ms: int) -> list[tuple[int, int]]:
        """Id and epoch of the brokers whose session is over, sorted by id. Time in which this process did not run does
        not count."""
        if self._checked_ms != NEVER:
            lost_ms = now_ms - self._checked_ms - 2 * self.check_interval_ms
            if lost_ms > 0:
                for contact in self._contacts.values():
                    contact.last_ms += lost_ms
        self._checked_ms = now_ms
        return [
            (broker_id, contact.epoch)
            for broker_id, contact in sorted(self._contacts.items())
            if now_ms - contact.last_ms >= self.session_timeout_ms
        ]

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
