"""Judges what a log or a group has against what producers and consumers saw. Pure: lists in, sentences out.

A record is a pair of offset and value. A producer's `acknowledged` are the records of one partition in the order in
which it sent them; an offset below 0 means that the answer named none, as for a repeated batch.
"""


def problems_of_log(where, log, acknowledged):
    """`log`: every record of one replica by offset. `acknowledged`: one list for each producer; together they are all
    that was ever sent, so nothing else may stand in the log."""
    at = dict(log)
    found = [value for _, value in log]
    yield from twice(where, found)
    known = set()
    for producer, records in acknowledged.items():
        values = [value for _, value in records]
        known.update(values)
        yield from misplaced(where, producer, records, at)
        wanted = set(values)
        yield from difference(where, producer, [value for value in found if value in wanted], values)
    strange = [(offset, value) for offset, value in log if value not in known]
    if strange:
        yield f"{where} has {len(strange)} records that no producer got acknowledged, the first is {strange[0]}"


def twice(where, values):
    seen = set()
    for value in values:
        if value in seen:
            yield f"{where} has {value!r} twice"
            return
        seen.add(value)


def misplaced(where, producer, records, at):
    """Each record stands at the offset that its acknowledgement named."""
    for offset, value in records:
        if offset >= 0 and at.get(offset) != value:
            yield f"{where} has {at.get(offset)!r} at {offset}, where {producer} got {value!r} acknowledged"
            return


def difference(where, producer, found, expected):
    """No acknowledged record is lost, and they stand in the order in which they were sent."""
    if found == expected:
        return
    present = set(found)
    lost = [value for value in expected if value not in present]
    if lost:
        yield f"{where} lost {len(lost)} records that {producer} got acknowledged, the first is {lost[0]!r}"
    else:
        index = next((i for i, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]), 0)
        there, wanted = found[index : index + 3], expected[index : index + 3]
        yield f"{where} has the records of {producer} in another order: {there} where it sent {wanted}"


class GroupRecord:
    """The reads and commits of one group's members, in the order in which the members report them.

    A member that gets a partition begins at the last acknowledged commit or behind it, and then reads on without going
    back. `problems` has a sentence for each time when that was not so.
    """

    def __init__(self, name):
        self.name, self.problems = name, []
        self.committed = {}  # offsets by partition: the highest that an answer confirmed
        self.read = {}  # offsets by partition, by any member

    def assigned(self, partitions):
        """A member got these partitions; returns the lowest offset that it may read of each."""
        return {each: self.committed.get(each, 0) for each in partitions}

    def reads(self, floors, partition, first, last):
        """A member with these floors read the offsets from `first` to `last`."""
        floor = floors.get(partition)
        if floor is None:
            self.problems.append(f"{self.name} read {partition} at {first}, which that member did not have")
        elif first < floor:
            self.problems.append(f"{self.name} read {partition} at {first} again, after {floor} was committed or read")
        floors[partition] = last + 1
        self.read.setdefault(partition, set()).update(range(first, last + 1))

    def commits(self, partition, offset):
        """A commit of this offset was answered without an error."""
        self.committed[partition] = max(offset, self.committed.get(partition, 0))

    def unread(self, partition, offsets):
        """Those of the offsets that no member has read."""
        return set(offsets) - self.read.get(partition, set())
