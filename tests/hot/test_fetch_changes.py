"""When a processor (a native thread that serves connections) serves a Fetch in a session, it checks only the partitions
that have changed. It must not miss a change, and every partition must eventually be read.
"""

import random

import pytest

from kafkacore._fast.log.partition_edges import ACTIVE, FENCED, PartitionEdges
from kafkacore._fast.log.replication_quota import BY_LEADER, ReplicationQuota
from kafkacore._fast.world.environment import ManualClock
from kafkacore.protocol import messages as m
from kafkacore.protocol.errors import ErrorCode
from seeds import SEED

VERSION = 17
LAG_MS = 30_000
NOW_MS = 1_700_000_000_000
PARTITIONS = 6
ROUNDS = 1_500


@pytest.fixture
def clock():
    return ManualClock(NOW_MS)


@pytest.fixture
def plane(open_plane, clock):
    """Returns a data plane whose node 1 leads the partitions. Brokers 2 and 3 are followers, and both are in the
    ISR."""
    return replicated(open_plane(partitions=PARTITIONS, clock=clock, segment_bytes=2000))


def replicated(plane):
    plane.edges = PartitionEdges(LAG_MS, plane.environment)
    plane.edges.set_brokers([(each, ACTIVE, 11 * each) for each in (1, 2, 3)])
    for partition in plane.partitions:
        partition.report_to(plane.edges)
        partition.become_leader(1, 1, 1, followers=[(2, True), (3, True)])
    return plane


class Session:
    """The client's side of a fetch session of broker 2, or of a consumer if `broker_id` is -1. It remembers all that a
    client must remember about its session."""

    def __init__(self, plane, indexes, broker_id=2, isolation_level=0, **fields):
        self.plane, self.broker_id, self.isolation_level = plane, broker_id, isolation_level
        self.client = plane.client()
        self.offsets = dict.fromkeys(indexes, 0)
        self.epochs = {index: plane.partitions[index].leader_epoch for index in indexes}
        self.told = {}  # by partition index: the high watermark and the log start offset that the client last received
        self.changed = set()  # the partitions that the next request must contain
        self.session_id = self.epoch = 0
        self.changed.update(indexes)
        self.named = self.take(self.fetch(**fields))
        assert self.session_id != 0

    def request(self, indexes, session_id, epoch, **fields):
        request = self.plane.fetch_request(
            {index: self.offsets[index] for index in sorted(indexes)}, VERSION,
            session_id=session_id, session_epoch=epoch, isolation_level=self.isolation_level, **fields,
        )  # fmt: skip
        if self.broker_id >= 0:
            request.replica_state = m.FetchRequest.ReplicaState(
                replica_id=self.broker_id, replica_epoch=11 * self.broker_id
            )
        for topic in request.topics:
            for each in topic.partitions:
                each.current_leader_epoch = self.epochs[each.partition]
        return request

    def send(self, forget=(), **fields):
        request = self.request(self.changed, self.session_id, self.epoch, **fields)
        if forget:
            gone = m.FetchRequest.ForgottenTopic(partitions=list(forget), topic_id=self.plane.topic_id)
            request.forgotten_topics_data = [gone]
        self.changed.clear()
        self.epoch += 1
        self.client.send(request, VERSION)

    def receive(self):
        answer = self.client.receive(m.FetchResponse, VERSION)[1]
        assert answer.error_code == 0
        self.session_id = answer.session_id
        return {part.partition_index: part for topic in answer.responses for part in topic.partitions}

    def fetch(self, **fields):
        self.send(**fields)
        return self.receive()

    def take(self, parts):
        for index, part in parts.items():
            self.told[index] = None if part.error_code else (part.high_watermark, part.log_start_offset)
        return parts

    def expected(self, **fields):
        """Returns the changes that the next answer in the session should contain. Computes them from a full Fetch
        without a session, which checks all partitions."""
        request = self.request(self.offsets, 0, -1, **fields)
        answer = self.plane.clients[-1].fetch(request, VERSION)
        found = {}
        for part in (part for topic in answer.responses for part in topic.partitions):
            now = (part.high_watermark, part.log_start_offset)
            diverges = part.diverging_epoch.end_offset >= 0
            if part.records or part.error_code or diverges or self.told.get(part.partition_index) != now:
                found[part.partition_index] = part
        return found

    def go_on(self, parts):
        """Processes an answer as a follower or a consumer does."""
        for index, part in parts.items():
            partition = self.plane.partitions[index]
            if part.error_code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH):
                self.epochs[index] = partition.leader_epoch
            elif part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self.offsets[index] = partition.log_start_offset
            elif part.records:
                end_offset = partition.end_offset if self.broker_id >= 0 else part.high_watermark
                self.offsets[index] = end_offset
            else:
                continue
            self.changed.add(index)


def shown(parts):
    return {
        index: (part.error_code, part.high_watermark, part.log_start_offset, bytes(part.records or b""))
        for index, part in parts.items()
    }


class Workload:
    """Random changes of partitions and of their roles, made with the methods that the node calls."""

    def __init__(self, plane, source, batch):
        self.plane, self.source, self.batch = plane, source, batch
        self.partition_epoch = 1

    def step(self):
        partition = self.source.choice(self.plane.partitions)
        works = [self.append] * 5 + [self.follow] * 5 + [self.delete, self.reduce_isr, self.restore_isr]
        works += [self.begin_epoch, self.truncate, self.lose_role]
        self.source.choice(works)(partition)

    def lead(self, partition, epoch, followers):
        self.partition_epoch += 1
        partition.become_leader(1, epoch, self.partition_epoch, followers=followers)

    def append(self, partition):
        if partition.role == "leader":
            partition.append(self.batch(self.source.randrange(1, 4)), acks=1)

    def follow(self, partition):
        if partition.role == "leader":
            partition.followed(3, self.source.randrange(partition.log_start_offset, partition.end_offset + 1), 33)

    def delete(self, partition):
        if partition.role == "leader" and partition.high_watermark > partition.log_start_offset:
            partition.drop_below(self.source.randrange(partition.log_start_offset, partition.high_watermark) + 1)

    def reduce_isr(self, partition):
        if partition.role == "leader":
            self.lead(partition, partition.leader_epoch, [(2, self.source.random() < 0.5), (3, False)])

    def restore_isr(self, partition):
        if partition.role == "leader":
            self.lead(partition, partition.leader_epoch, [(2, True), (3, True)])

    def begin_epoch(self, partition):
        self.lead(partition, partition.leader_epoch + 1, [(2, True), (3, True)])

    def truncate(self, partition):
        if partition.end_offset > partition.log_start_offset:
            partition.truncate_to(self.source.randrange(partition.log_start_offset, partition.end_offset))

    def lose_role(self, partition):
        self.partition_epoch += 1
        partition.become_follower(3, partition.leader_epoch + 1, self.partition_epoch)


@pytest.mark.parametrize(("broker_id", "isolation_level"), [(2, 0), (-1, 0), (-1, 1)])
def test_session_names_the_same_partitions_as_a_look_at_all_partitions(plane, batch, broker_id, isolation_level):
    source = random.Random(SEED)
    workload = Workload(plane, source, batch)
    for _ in range(5):
        workload.step()
    session = Session(plane, range(PARTITIONS - 1), broker_id, isolation_level)
    plane.client()
    session.go_on(session.named)
    for number in range(ROUNDS):
        for _ in range(source.choice([0, 0, 1, 1, 2, 5])):
            workload.step()
        forgotten = []
        if source.random() < 0.02 and len(session.offsets) > 1:
            forgotten = [source.choice(list(session.offsets))]
            for index in forgotten:
                del session.offsets[index], session.epochs[index]
                session.told.pop(index, None)
                session.changed.discard(index)
        missing = [index for index in range(PARTITIONS) if index not in session.offsets and index not in forgotten]
        if missing and source.random() < 0.1:
            index = source.choice(missing)
            session.offsets[index], session.epochs[index] = 0, plane.partitions[index].leader_epoch
            session.changed.add(index)
        named = session.fetch(forget=forgotten)
        expected = session.expected()
        assert shown(named) == shown(expected), f"round {number} of seed {SEED}"
        session.take(named)
        if source.random() < 0.9:
            session.go_on(named)


def test_waiting_session_is_answered_when_a_partition_gets_records(plane, batch):
    session = Session(plane, range(PARTITIONS))
    session.fetch()
    session.send(max_wait_ms=60_000)
    plane.client().produce(plane.produce_request(batch(1), partition=4, acks=1))
    assert list(session.receive()) == [4]


def test_waiting_session_keeps_its_memory_when_no_partition_is_added(open_plane, clock, batch):
    plane = replicated(open_plane(partitions=1000, clock=clock))
    session = Session(plane, range(1000))
    other = plane.client()
    session.send(max_wait_ms=60_000, min_bytes=1 << 20)  # names no partition, and so reads all of them again
    other.fetch(plane.fetch_request({0: 0}))  # its answer shows that the earlier Fetch is already waiting
    parked_bytes = plane.plane.counters()["memory_parked_bytes"]
    assert parked_bytes > 0
    for _ in range(3):
        plane.partitions[4].append(batch(1), acks=1)
        other.fetch(plane.fetch_request({0: 0}))
    assert plane.plane.counters()["memory_parked_bytes"] < 1.2 * parked_bytes
    session.client.close()


def test_waiting_session_is_answered_when_a_role_changes(plane):
    session = Session(plane, range(PARTITIONS))
    session.fetch()
    session.send(max_wait_ms=60_000)
    plane.partitions[2].become_follower(3, 2, 2)
    assert {index: part.error_code for index, part in session.receive().items()} == {2: ErrorCode.FENCED_LEADER_EPOCH}


def test_waiting_session_is_answered_when_a_partition_is_deleted(plane):
    session = Session(plane, range(PARTITIONS))
    session.fetch()
    session.send(max_wait_ms=60_000)
    plane.partitions[2].close(gone=True)
    assert {index: part.error_code for index, part in session.receive().items()} == {
        2: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    assert list(session.fetch()) == [2], "as in Apache Kafka, every answer must repeat an error"


def test_waiting_session_brings_a_high_watermark_that_moved_meanwhile(plane, clock, batch):
    plane.partitions[1].append(batch(1), acks=1)
    session = Session(plane, range(PARTITIONS))
    session.offsets[1] = 1
    session.changed.add(1)
    session.fetch()
    session.send(max_wait_ms=1_000)
    plane.client().fetch(plane.fetch_request({0: 0}))  # its answer shows that the earlier Fetch is already waiting
    assert plane.partitions[1].followed(3, 1, 33) == 0
    assert plane.partitions[1].high_watermark == 1
    clock.advance_ms(1_001)
    plane.client().fetch(plane.fetch_request({0: 0}))
    assert {index: part.high_watermark for index, part in session.receive().items()} == {1: 1}


def test_request_that_is_overtaken_gives_its_news_to_the_next(plane, batch):
    session = Session(plane, range(PARTITIONS))
    session.fetch()
    session.send(max_wait_ms=60_000, min_bytes=1 << 20)
    first = session.client
    plane.client().produce(plane.produce_request(batch(1), partition=3, acks=1))
    session.client = plane.client()
    session.send(max_wait_ms=60_000, min_bytes=1 << 20)
    overtaken = first.receive(m.FetchResponse, VERSION)[1]
    assert overtaken.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    plane.client().produce(plane.produce_request(batch(1), partition=3, acks=1))
    second = session.client
    session.client = plane.client()
    session.send()
    assert second.receive(m.FetchResponse, VERSION)[1].error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert 3 in session.receive() or 3 in session.fetch()


def test_connection_that_closes_gives_the_news_of_its_fetch_back(plane, batch):
    session = Session(plane, range(PARTITIONS))
    session.fetch()
    plane.partitions[5].append(batch(1), acks=1)
    session.send(max_wait_ms=60_000, min_bytes=1 << 20)
    session.client.close()
    session.client = plane.client()
    assert 5 in session.fetch() or 5 in session.fetch()


def test_partitions_take_turns_when_one_batch_fills_the_answer(plane, batch):
    for partition in plane.partitions[:4]:
        for _ in range(3):
            partition.append(batch(1), acks=1)
    session = Session(plane, range(PARTITIONS))
    sent = []
    for _ in range(12):
        sent += [index for index, part in session.fetch(max_bytes=1).items() if part.records]
    assert len(sent) == 12
    assert all(set(sent[at : at + 4]) == {0, 1, 2, 3} for at in range(len(sent) - 3))


def test_follower_of_an_idle_partition_does_not_lag_when_a_record_comes(plane, clock, batch):
    session = Session(plane, range(PARTITIONS))
    session.fetch()
    for _ in range(3):
        clock.advance_ms(LAG_MS - 1)
        assert session.fetch() == {}
    plane.partitions[0].append(batch(1), acks=1)
    assert [each.lags for each in plane.partitions[0].followers() if each.broker_id == 2] == [False]
    clock.advance_ms(LAG_MS + 1)
    assert [each.lags for each in plane.partitions[0].followers() if each.broker_id == 2] == [True]


def test_follower_that_stopped_fetching_lags_when_a_record_comes(plane, clock, batch):
    session = Session(plane, range(PARTITIONS))
    session.fetch()
    clock.advance_ms(LAG_MS + 1)
    plane.partitions[0].append(batch(1), acks=1)
    assert [each.lags for each in plane.partitions[0].followers() if each.broker_id == 2] == [True]


def test_follower_of_an_idle_partition_is_reported_when_its_broker_is_unfenced(plane):
    plane.edges.set_brokers([(1, ACTIVE, 11), (2, FENCED, 22), (3, ACTIVE, 33)])
    for partition in plane.partitions:
        partition.become_leader(1, 1, 2, followers=[(2, False), (3, True)])
    session = Session(plane, range(PARTITIONS))
    session.fetch()
    assert plane.edges.take(100) == []
    plane.edges.set_brokers([(each, ACTIVE, 11 * each) for each in (1, 2, 3)])
    session.fetch()
    assert sorted(index for _, index in plane.edges.take(100)) == list(range(PARTITIONS))


def test_session_without_requests_keeps_no_deleted_partition_alive(plane):
    session = Session(plane, range(PARTITIONS))
    session.fetch()
    for partition in plane.partitions:
        partition.close(gone=True)
    assert set(session.fetch()) == set(range(PARTITIONS))


# --- throttles (KIP-73) ---


@pytest.fixture
def throttled(open_plane, clock):
    """Throttles partition 0 to 1,000 bytes per second for replicas that are outside the ISR."""
    plane = replicated(open_plane(partitions=2, clock=clock, leader_quota=ReplicationQuota(11, 1000, 1000)))
    plane.partitions[0].throttled = BY_LEADER
    return plane


def out_of_isr(plane):
    for partition in plane.partitions:
        partition.become_leader(1, 1, 2, followers=[(2, False), (3, True)])


def test_throttled_replica_outside_the_isr_waits_until_the_quota_allows(throttled, clock, batch):
    out_of_isr(throttled)
    for partition in throttled.partitions:
        partition.append(batch(20), acks=1)
    session = Session(throttled, range(2))
    assert all(part.records for part in session.named.values()), "the first bytes of a window must pass"
    found = session.fetch()
    assert list(found) == [1], "only the unthrottled partition may continue"
    assert found[1].records
    session.offsets[1] = throttled.partitions[1].end_offset
    session.changed.add(1)
    session.fetch()
    session.send(max_wait_ms=500)
    throttled.client().fetch(throttled.fetch_request({0: 0}))
    clock.advance_ms(501)
    throttled.client().fetch(throttled.fetch_request({0: 0}))
    assert session.receive() == {}
    clock.advance_ms(11_000)
    assert session.fetch()[0].records


def test_full_fetch_of_a_throttled_replica_waits_too(throttled, clock, batch):
    out_of_isr(throttled)
    throttled.partitions[0].append(batch(20), acks=1)
    session = Session(throttled, [0])
    assert session.named[0].records
    request = session.request([0], 0, -1, max_wait_ms=500)
    client = throttled.client()
    client.send(request, VERSION)
    throttled.client().fetch(throttled.fetch_request({0: 0}))
    clock.advance_ms(501)
    throttled.client().fetch(throttled.fetch_request({0: 0}))
    [part] = client.receive(m.FetchResponse, VERSION)[1].responses[0].partitions
    assert not part.records
    assert part.error_code == 0


def test_throttled_replica_in_the_isr_is_not_held_back_and_counts(throttled, batch):
    throttled.partitions[0].append(batch(20), acks=1)
    session = Session(throttled, [0])
    assert session.fetch()[0].records
    assert throttled.quota.exceeded(throttled.environment.monotonic_ns() // 1_000_000)


def test_consumer_of_a_throttled_partition_is_not_held_back(throttled, batch):
    throttled.partitions[0].append(batch(20), acks=1)
    session = Session(throttled, [0])
    session.fetch()
    throttled.partitions[0].followed(2, 20, 22)
    throttled.partitions[0].followed(3, 20, 33)
    reader = Session(throttled, [0], broker_id=-1)
    assert reader.named[0].records
