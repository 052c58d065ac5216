"""Compares the contents of a log, or the work of a group, with what producers and consumers saw. All functions are
pure: they take lists and yield sentences that describe problems.

The argument `acknowledged` has the (offset, value) pairs that a producer has written to one partition, in the order in
which the producer sent the records. A negative offset means that the response contained no offset, as in the answer to
a repeated batch.
"""

from typing import NamedTuple


class Stored(NamedTuple):
    """A record in a log. In each of its epochs, an idempotent producer numbers the records of a partition from 0."""

    offset: int
    value: bytes
    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1


def problems_of_log(where, log, acknowledged, renumbering=()):
    """Yields a sentence for each problem in one replica's log. `log` has all its Stored records. `acknowledged` maps
    each producer to its records. Together these are all records that were ever sent, so the log may contain nothing
    else. `renumbering` names the producers that may send a record again in a new epoch. Such a record gets a new
    sequence number, so no broker can recognise it."""
    at = {record.offset: record.value for record in log}
    again = {value for producer in renumbering for _, value in acknowledged[producer]}
    found = [record.value for record in without_repeats(log, again)]
    yield from misnumbered(where, log)
    yield from twice(where, found)
    known = set()
    for producer, records in acknowledged.items():
        values = [value for _, value in records]
        known.update(values)
        yield from misplaced(where, producer, records, at)
        wanted = set(values)
        yield from difference(where, producer, [value for value in found if value in wanted], values)
    strange = [record for record in log if record.value not in known]
    if strange:
        yield f"{where} has {len(strange)} records that no broker acknowledged; the first is {strange[0]}"


def misnumbered(where, log):
    """Checks that the log contains each sequence number of an idempotent producer once, and all of them in order. A
    broker guarantees this."""
    last = {}
    for record in log:
        if record.producer_id < 0:
            continue
        epoch, sequence = last.get(record.producer_id, (-1, -1))
        wanted = sequence + 1 if record.epoch == epoch else 0
        if record.epoch < epoch or record.sequence != wanted:
            yield f"{where} has {record} after epoch {epoch} and sequence {sequence} of the same producer"
            return
        last[record.producer_id] = record.epoch, record.sequence


def without_repeats(log, again):
    """Yields the records of the log. Leaves out a record of `again` if its producer had already stored it in an older
    epoch."""
    first = {}
    for record in log:
        before = first.setdefault(record.value, record)
        repeats = record.producer_id == before.producer_id and record.epoch > before.epoch
        if not (repeats and record.value in again):
            yield record


def twice(where, values):
    seen = set()
    for value in values:
        if value in seen:
            yield f"{where} has {value!r} twice"
            return
        seen.add(value)


def misplaced(where, producer, records, at):
    """Checks that each record is at the offset that the broker acknowledged."""
    for offset, value in records:
        if offset >= 0 and at.get(offset) != value:
            yield f"{where} has {at.get(offset)!r} at {offset}, but {producer} got an acknowledgement for {value!r}"
            return


def first_difference(found, expected):
    """Returns a text for a message that shows where two lists of records diverge."""
    at = next((i for i, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]), None)
    if at is None:
        at = min(len(found), len(expected))
    return f"{len(found)} of {len(expected)} records; at {at}: {found[at : at + 3]} in place of {expected[at : at + 3]}"


def difference(where, producer, found, expected):
    """Checks that no acknowledged record is lost, and that the records are in the order in which the producer sent
    them."""
    if found == expected:
        return
    present = set(found)
    lost = [value for value in expected if value not in present]
    if lost:
        yield f"{where} lost {len(lost)} acknowledged records of {producer}; the first is {lost[0]!r}"
    else:
        index = next((i for i, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]), 0)
        there, wanted = found[index : index + 3], expected[index : index + 3]
        yield f"{where} has the records of {producer} in the wrong order: {there} instead of {wanted}"


class GroupRecord:
    """The reads and commits of the members of one group, in the order in which the members report them.

    A member that gets a partition must begin at the last acknowledged commit, or at a later offset, and must never go
    back. `problems` has a sentence for each violation of this rule.
    """

    def __init__(self, name):
        self.name, self.problems = name, []
        self.committed = {}  # by partition: the highest offset whose commit was acknowledged
        self.read = {}  # by partition: the offsets that any member has read

    def assigned(self, partitions):
        """Notes that a member got these partitions. Returns, for each partition, the lowest offset that the member may
        read."""
        return {each: self.committed.get(each, 0) for each in partitions}

    def reads(self, floors, partition, first, last):
        """Notes that a member with these floors read the offsets from `first` to `last`."""
        floor = floors.get(partition)
        if floor is None:
            self.problems.append(f"{self.name} read {partition} at {first} through a member that did not own it")
        elif first < floor:
            self.problems.append(f"{self.name} read {partition} at {first} again, after {floor} was committed or read")
        floors[partition] = last + 1
        self.read.setdefault(partition, set()).update(range(first, last + 1))

    def commits(self, partition, offset):
        """Notes that the broker has acknowledged a commit of this offset."""
        self.committed[partition] = max(offset, self.committed.get(partition, 0))

    def unread(self, partition, offsets):
        """Returns the offsets that no member has read."""
        return set(offsets) - self.read.get(partition, set())
