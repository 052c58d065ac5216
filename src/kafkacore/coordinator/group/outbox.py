"""The effects of one input to a shard, and the open appends. An open append has neither been committed nor failed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from kafkacore.coordinator.group.answers import append_error
from kafkacore.coordinator.group.effects import Answer, Append, Effects, GroupRecord, Waiter
from kafkacore.protocol.errors import ErrorCode, error_for

MAX_OPEN_APPENDS: Final = 10_000  # at this limit, requests get an error that makes clients retry

# Called once: with NONE when an append is committed, or with the error for clients when it has failed.
Outcome = Callable[[ErrorCode], None]
# Topics and partitions, by group. No group has an empty list.
Touched = Mapping[str, Iterable[tuple[str, Iterable[int]]]]

_NOTHING: Final[Touched] = MappingProxyType({})
_NO_EFFECTS: Final = Effects()


class OpenAppend:
    """An append that has neither been committed nor failed. `outcome` is called once: when the append is committed,
    when it fails, or when it takes too long. `apply` gets the offset of the batch's first record, and stores the
    content of the batch as the recorded state. If the shard changed unrecorded state when it began the append, `revert`
    undoes these changes. `offsets` has the topics and partitions whose offsets the append commits or deletes, by group.
    `late` says that the append has taken too long. The shard might never learn the outcome of a late append, so no
    further request waits for it."""

    __slots__ = ("apply", "late", "offsets", "outcome", "revert", "waiting")

    def __init__(
        self,
        outcome: Outcome | None,
        apply: Callable[[int], None] | None,
        revert: Callable[[], None] | None,
        offsets: Touched,
    ) -> None:
        self.outcome = outcome
        self.apply = apply
        self.revert = revert
        self.offsets = offsets
        self.late = False
        self.waiting: list[Outcome] = []  # further callbacks for the outcome

    def tell(self, error: ErrorCode) -> None:
        outcome, self.outcome = self.outcome, None
        waiting, self.waiting = self.waiting, []
        if outcome is not None:
            outcome(error)
        for each in waiting:
            each(error)


class Outbox:
    """Collects the effects of a shard's inputs. Belongs to one shard. The processing of an input ends with `take`."""

    def __init__(self) -> None:
        self._effects = Effects()
        self._open: OrderedDict[int, OpenAppend] = OrderedDict()  # keyed by token
        # For each group: the open appends that commit or delete its offsets, by token.
        self._touching: dict[str, dict[int, OpenAppend]] = {}
        self._last_token = 0

    def take(self) -> Effects:
        effects = self._effects
        if not effects:
            return _NO_EFFECTS
        self._effects = Effects()
        return effects

    def answer(self, waiter: Waiter, response: Any) -> None:
        self._effects.answers.append(Answer(waiter, response))

    def append(
        self,
        records: Collection[GroupRecord],
        outcome: Outcome | None = None,
        *,
        apply: Callable[[int], None] | None = None,
        revert: Callable[[], None] | None = None,
        offsets: Touched = _NOTHING,
        independent: bool = False,
    ) -> None:
        self._last_token += 1
        append = self._open[self._last_token] = OpenAppend(outcome, apply, revert, offsets)
        for group_id in offsets:
            self._touching.setdefault(group_id, {})[self._last_token] = append
        self._effects.appends.append(Append(self._last_token, records, independent))

    def require_room(self) -> None:
        """Raises COORDINATOR_NOT_AVAILABLE if too many appends are open."""
        if len(self._open) >= MAX_OPEN_APPENDS:
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, "Too many commits wait for the replicas.")

    # --- results of appends ---

    def committed(self, token: int, base_offset: int) -> None:
        """Applies a committed append. Raises ValueError if the token does not belong to the oldest open append."""
        oldest = next(iter(self._open), None)
        if oldest != token:
            raise ValueError(f"append {token} is not the oldest open append, which is {oldest}")
        apply = self._open[token].apply
        if apply is not None:
            apply(base_offset)  # if this fails, the append stays open, and `give_up` answers its waiters
        self._close(token).tell(ErrorCode.NONE)

    def failed(self, token: int, error: int) -> None:
        """Ends an append that has failed. Earlier appends may still wait for the replicas. Raises KeyError if the token
        is not open."""
        append = self._close(token)
        append.tell(append_error(error))
        if append.revert is not None:
            append.revert()

    def timed_out(self, token: int) -> None:
        if token in self._open:
            self._open[token].late = True
            self._open[token].tell(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def give_up(self, error: ErrorCode) -> None:
        """Ends all open appends, because this shard will never learn whether they are committed."""
        while self._open:
            self._close(next(iter(self._open))).tell(error)

    def _close(self, token: int) -> OpenAppend:
        append = self._open.pop(token)
        for group_id in append.offsets:
            touching = self._touching[group_id]
            del touching[token]
            if not touching:
                del self._touching[group_id]
        return append

    # --- open appends ---

    @property
    def open_count(self) -> int:
        return len(self._open)

    def last_of(self, group_id: str) -> OpenAppend | None:
        """Returns the last open append that commits or deletes offsets of this group."""
        touching = self._touching.get(group_id)
        return None if touching is None else touching[next(reversed(touching))]

    def group_ids(self) -> set[str]:
        """Returns the groups with an open append that commits or deletes their offsets."""
        return set(self._touching)

    def open_offsets(self, group_id: str) -> set[tuple[str, int]]:
        """Returns the topics and partitions for which an open append commits or deletes the group's offsets."""
        return {
            (topic, partition)
            for append in self._touching.get(group_id, {}).values()
            for topic, partitions in append.offsets[group_id]
            for partition in partitions
        }


class Parked:
    """A request that waits for its group to change. It is answered once."""

    __slots__ = ("_outbox", "_waiter", "answered", "api_version")

    def __init__(self, outbox: Outbox, waiter: Waiter, api_version: int) -> None:
        self._outbox = outbox
        self._waiter = waiter
        self.api_version = api_version
        self.answered = False

    def answer(self, response: Any) -> None:
        if not self.answered:
            self.answered = True
            self._outbox.answer(self._waiter, response)
