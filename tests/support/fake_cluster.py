"""A stub of a cluster, made of a few dictionaries. It answers the questions that the planner of a Spark query asks its
client."""

from kafkacore.client import EARLIEST, LATEST, Offset, Partition, Topic, TopicMissing
from kafkacore.protocol.uuid import Uuid


class FakeCluster:
    """A stub of the client. `logs` maps (topic, partition) to the partition's first offset and its next offset. Tests
    change this mapping freely."""

    def __init__(self, logs):
        self.logs = dict(logs)
        self.ids = {}
        self.stale_answers = []  # outdated latest offsets, which the next questions get instead of the current ones
        self.asked = 0
        self.closed = False
        for topic in {topic for topic, _ in self.logs}:
            self.create(topic)

    def create(self, topic):
        """Makes the topic exist under a new id."""
        self.ids[topic] = Uuid.random()

    def grow(self, count, *partitions):
        for which in partitions or list(self.logs):
            first, end = self.logs[which]
            self.logs[which] = (first, end + count)

    def topics(self, names=None):
        found = {}
        for name in self.ids if names is None else names:
            numbers = [number for topic, number in self.logs if topic == name]
            if not numbers:
                raise TopicMissing(name)
            found[name] = Topic(name, self.ids[name], {number: Partition(1, 0) for number in numbers})
        return found

    def offsets(self, wanted, isolation_level="read_uncommitted"):
        self.asked += 1
        for topic, _ in wanted:
            self.topics([topic])
        if self.stale_answers and LATEST in wanted.values():
            return {which: Offset(self.stale_answers.pop(0), -1, 0) for which in wanted}
        return {which: Offset(self.offset(which, when), -1, 0) for which, when in wanted.items()}

    def offset(self, which, when):
        first, end = self.logs[which]
        if when == EARLIEST:
            return first
        if when == LATEST:
            return end
        # The timestamp of a record, in seconds, equals its offset.
        at = max(first, -(-when // 1000))
        return at if at < end else -1

    def close(self):
        self.closed = True


def bounds(tasks):
    """Returns the topic, the partition, the first offset and the next offset of each range that the tasks read."""
    return sorted((one.topic, one.partition, one.start, one.end) for task in tasks for one in task.value)
