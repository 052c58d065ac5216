"""Clusters of processes with replicated partitions. A test can change and check their leaders, their ISRs and the
contents of each replica.

`ReplicatedCluster(path, brokers={101: OURS, 102: "apache-4.3"}, ...)` makes a cluster in KRaft mode. `Writes` writes to
its partitions in the background. `assert_whole` then reads each partition from each of its replicas, and compares the
files of the replicas.
"""

import threading
import time
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Producer

from asking import ask
from kafkacore._fast.record.batch import Batches
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    CreateTopicsRequest,
    ElectLeadersRequest,
    FetchRequest,
    ListPartitionReassignmentsRequest,
    MetadataRequest,
)
from process_cluster import LIMIT_S, ProcessCluster
from processes import wait_until
from record_checks import Stored, problems_of_log

PREFERRED, UNCLEAN = 0, 1
FETCH_VERSION = 12  # the last version that identifies topics by name
MAX_BYTES = 8 << 20
ANSWER_MS = 20_000
SEEN_CHARACTERS = 4000  # a timeout error shows at most this many characters of the partitions' states
# On two cores, a broker of Apache Kafka needs seconds to start, and pauses now and then. Its session must be longer
# than these pauses.
SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "replica.lag.time.max.ms": "5000",
    "replica.fetch.wait.max.ms": "100",
    "controlled.shutdown.enable": "true",
    "auto.create.topics.enable": "false",
}


@dataclass(frozen=True)
class PartitionState:
    """A partition as the Metadata response shows it. `isr` and `replicas` are tuples of broker ids."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class Replicated:
    """Adds changes and checks of partitions to a cluster of processes in either mode."""

    def seen(self):
        return f"{super().seen()}\n--- partitions: {str(self.partitions())[:SEEN_CHARACTERS]}"

    def ask_any(self, request, version, accepts=lambda answer: True):
        """Returns the first response of a live broker that `accepts` accepts, or None."""
        for node_id, member in self.brokers.items():
            if member.alive() and (answer := self.ask(node_id, request, version)) is not None and accepts(answer):
                return answer
        return None

    def ask_controller(self, request, version, accepts=lambda answer: True):
        """Returns the controller's response if `accepts` accepts it, else None. In KRaft mode, any broker forwards the
        request to the controller."""
        return self.ask_any(request, version, accepts)

    # --- the state of the partitions ---

    def partitions(self, *names):
        """Returns a PartitionState by (topic, partition), for these topics or for all. Returns an empty dict if no
        broker answers."""
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names] if names else None
        answer = self.ask_any(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)
        if answer is None:
            return {}
        return {
            (topic.name, each.partition_index): PartitionState(
                each.leader_id, each.leader_epoch, tuple(each.replica_nodes), tuple(each.isr_nodes)
            )
            for topic in answer.topics
            for each in topic.partitions
        }

    def known(self, name):
        """Returns whether every live broker shows the topic."""
        topics = [MetadataRequest.MetadataRequestTopic(name=name)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        answers = [self.ask(node_id, request, 9) for node_id, member in self.brokers.items() if member.alive()]
        return all(answer and not answer.topics[0].error_code for answer in answers)

    def state(self, topic, partition=0):
        return self.partitions(topic).get((topic, partition))

    # --- changes ---

    def create(self, name, assignment, **configs):
        """Creates a topic whose partition i has the replicas `assignment[i]`. Waits until all of them are in sync."""
        made = CreateTopicsRequest
        topic = made.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                made.CreatableReplicaAssignment(partition_index=i, broker_ids=ids) for i, ids in enumerate(assignment)
            ],
            configs=[made.CreatableTopicConfig(name=key.replace("_", "."), value=v) for key, v in configs.items()],
        )

        def created():
            answer = self.ask_controller(made(topics=[topic], timeout_ms=ANSWER_MS), 5)
            errors.append(answer and answer.topics[0].error_message)
            return answer and answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

        errors = []

        try:
            self.wait(created, f"{name} created")
        except TimeoutError as error:
            raise TimeoutError(f"the last answer was {errors[-1]!r}: {error}") from None
        self.wait_in_sync(name, count=len(assignment))
        self.wait(lambda: self.known(name), f"{name} in the metadata of every live broker")

    def reassign(self, target, expected=frozenset({ErrorCode.NONE})):
        """Starts a reassignment. `target` maps (topic, partition) to the new replicas, or to None to cancel a
        reassignment. `expected` has the error codes that a partition may get."""
        made = AlterPartitionReassignmentsRequest
        topics = {}
        for (topic, partition), replicas in target.items():
            topics.setdefault(topic, []).append(
                made.ReassignablePartition(partition_index=partition, replicas=replicas)
            )
        request = made(
            timeout_ms=ANSWER_MS,
            topics=[made.ReassignableTopic(name=name, partitions=each) for name, each in topics.items()],
        )
        answer = self.wait(
            lambda: self.ask_controller(request, 0, lambda answer: answer.error_code != ErrorCode.NOT_CONTROLLER),
            "an answer to AlterPartitionReassignments",
        )
        assert answer.error_code == 0, answer
        assert {each.error_code for topic in answer.responses for each in topic.partitions} <= expected, answer

    def move(self, target):
        """Reassigns partitions, and waits until only the new replicas are left and all of them are in sync."""
        self.reassign(target)

        def moved():
            answer = self.ask_controller(ListPartitionReassignmentsRequest(timeout_ms=ANSWER_MS, topics=None), 0)
            found = self.partitions(*{topic for topic, _ in target})
            there = all(
                (state := found.get(which)) is not None
                and state.replicas == tuple(replicas)
                and set(state.isr) == set(replicas)
                for which, replicas in target.items()
            )
            return answer is not None and not answer.topics and there

        self.wait(moved, f"{len(target)} partitions moved, the last to {list(target.values())[-1]}")

    def elect(self, which, kind=PREFERRED):
        """Sends ElectLeaders for the partitions in `which`. Returns the error codes by (topic, partition). Asks another
        broker if one does not reach the controller, and retries while no broker does."""
        topics = {}
        for topic, partition in which:
            topics.setdefault(topic, []).append(partition)
        request = ElectLeadersRequest(
            election_type=kind,
            timeout_ms=ANSWER_MS,
            topic_partitions=[
                ElectLeadersRequest.TopicPartitions(topic=topic, partitions=partitions)
                for topic, partitions in topics.items()
            ],
        )

        answer = self.wait(
            lambda: self.ask_controller(request, 2, lambda answer: answer.error_code == 0), "an answer to ElectLeaders"
        )
        return {
            (topic.topic, each.partition_id): ErrorCode(each.error_code)
            for topic in answer.replica_election_results
            for each in topic.partition_result
        }

    def prefer(self, which):
        """Makes the first replica of each partition its leader, and waits until the elections are done."""
        errors = set(self.elect(which).values())
        assert errors <= {ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED}, errors

        def lead():
            found = self.partitions(*{topic for topic, _ in which})
            return all(found[each].leader == found[each].replicas[0] for each in which)

        self.wait(lead, f"{len(which)} preferred leaders")

    # --- waits ---

    def wait_in_sync(self, *topics, count=1):
        """Waits until every partition of these topics has a leader and all replicas are in sync. Expects at least
        `count` partitions."""

        def in_sync():
            found = self.partitions(*topics)
            return len(found) >= count and all(
                state.leader >= 0 and set(state.isr) == set(state.replicas) for state in found.values()
            )

        self.wait(in_sync, f"all replicas of {', '.join(topics)} in sync")

    def wait_isr(self, topic, partition, *isr):
        self.wait(
            lambda: (state := self.state(topic, partition)) and set(state.isr) == set(isr),
            f"{topic}-{partition} with the ISR {isr}",
        )

    def wait_leader(self, topic, partition, *leaders):
        """Waits until one of `leaders` leads the partition. Returns that leader."""

        def leads():
            state = self.state(topic, partition)
            return state is not None and state.leader in leaders and state.leader

        return self.wait(leads, f"{topic}-{partition} led by one of {leaders}")

    # --- checks ---

    def assert_whole(self, writes):
        """Checks that each replica serves every acknowledged record once and in order, and that the replicas' files
        contain the same bytes below the high watermark. Allows the records that librdkafka stores again in a new
        producer epoch (see `tests/clients/test_renumbered_records.py`)."""
        assert not writes.lost, writes.lost[0]
        states = self.partitions(*{topic for topic, _ in writes.acknowledged})
        for (topic, partition), values in writes.acknowledged.items():
            replicas = states[topic, partition].replicas
            for node_id in replicas:
                log = self.read_records(node_id, topic, partition, at_least=len(values))
                problems = problems_of_log(
                    f"{topic}-{partition} on {node_id}", log, {"the producer": [(-1, each) for each in values]},
                    renumbering=["the producer"],
                )  # fmt: skip
                assert not (problem := next(problems, None)), problem
            self.assert_replicas_agree(topic, partition, replicas)

    def assert_no_errors(self):
        """Checks that none of our nodes has logged an error."""
        for member in self.members.values():
            lines = member.log.read_text(errors="replace").splitlines() if member.log.exists() else []
            errors = [line for line in lines if " ERROR kafkacore" in line]
            assert not errors, f"{member.node_id}: {errors[:3]}"

    def read(self, node_id, topic, partition, at_least=0):
        """Waits until a replica, leader or follower, serves `at_least` values below its high watermark. Returns the
        values."""
        return [record.value for record in self.read_records(node_id, topic, partition, at_least)]

    def read_records(self, node_id, topic, partition, at_least=0):
        """Works like `read`, but returns Stored records."""
        found, offset, deadline = [], 0, time.monotonic() + LIMIT_S
        while True:
            answer = fetch(self.addresses[node_id], topic, partition, offset)
            if answer.error_code:
                code = ErrorCode(answer.error_code).name
                raise AssertionError(f"{topic}-{partition} from {node_id} at offset {offset}: {code}")
            for batch in Batches(answer.records or b""):
                if not batch.is_control:
                    found += [stored(batch, record) for record in batch if record.offset >= offset]
                offset = batch.next_offset
            if offset >= answer.high_watermark and len(found) >= at_least:
                return found
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{node_id} served {len(found)} of {at_least} records of {topic}-{partition} in {LIMIT_S} s, and "
                    f"its high watermark is {answer.high_watermark}\n{self.brokers[node_id].seen()}"
                )

    def assert_replicas_agree(self, topic, partition, replicas):
        """Checks that the files of these replicas contain the same batches below the high watermark, and at least one
        batch if the high watermark is above 0."""
        leader = self.state(topic, partition).leader
        end = fetch(self.addresses[leader], topic, partition, 0).high_watermark
        logs = {node_id: self.brokers[node_id].batches(topic, partition) for node_id in replicas}
        expected = {offset: data for offset, data in logs[leader].items() if offset < end}
        assert expected or end == 0, f"{topic}-{partition} of {leader} has no batch below the high watermark {end}"
        for node_id, log in logs.items():
            found = {offset: data for offset, data in log.items() if offset < end}
            assert found.keys() == expected.keys(), f"{topic}-{partition}: batches of {node_id} and {leader} differ"
            differ = [offset for offset in expected if found[offset] != expected[offset]]
            assert not differ, f"{topic}-{partition}: offset {differ[0]} differs between {leader} and {node_id}"


class ReplicatedCluster(Replicated, ProcessCluster):
    def __init__(self, path, *, settings=None, **options):
        super().__init__(path, settings=SETTINGS | (settings or {}), **options)


def fetch(address, topic, partition, offset):
    """Fetches from one partition of this broker, as a consumer does."""
    asked = FetchRequest.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=MAX_BYTES)
    request = FetchRequest(
        max_wait_ms=100, min_bytes=1, max_bytes=MAX_BYTES, session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[asked])],
    )  # fmt: skip
    return ask(address, request, FETCH_VERSION).responses[0].partitions[0]


def stored(batch, record):
    """Returns a record of a batch of magic 2, with the sequence number that its producer gave it."""
    sequence = -1 if batch.base_sequence < 0 else batch.base_sequence + record.offset_delta
    return Stored(record.offset, record.value, batch.producer_id, batch.producer_epoch, sequence)


class Writes:
    """Writes to partitions with an idempotent producer and acks=all, on a thread: `with Writes(cluster, which) as w`.

    `acknowledged` holds the values by (topic, partition), in the order of their acknowledgement. If `timeout_ms` is 0,
    the producer never gives up on a record. `more` has further settings of the producer.
    """

    def __init__(self, cluster, which, size=100, pause_s=0.02, timeout_ms=LIMIT_S * 1000, **more):
        self.cluster, self.which, self.size, self.pause_s = cluster, list(which), size, pause_s
        self.timeout_ms, self.more = timeout_ms, more
        self.acknowledged = {each: [] for each in self.which}
        self.lost = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._with_apache = any(not member.ours for member in cluster.brokers.values())

    def __enter__(self):
        self._thread.start()
        self.wait_progress()
        return self

    def __exit__(self, *_):
        self._ends.set()
        self._thread.join()

    def count(self):
        return sum(map(len, self.acknowledged.values()))

    def wait_progress(self, more=20):
        """Waits until each partition has received a record after the call, and all partitions together have received
        `more` records."""
        before = {each: len(values) for each, values in self.acknowledged.items()}
        enough = self.count() + more

        def behind():
            return [each for each, values in self.acknowledged.items() if len(values) == before[each]]

        def seen():
            return (
                f"{self.count()} records; no new one in {behind()[:5]}; refused: {self.lost[:3]}\n{self.cluster.seen()}"
            )

        wait_until(lambda: self.count() >= enough and not behind(), LIMIT_S, "new records in each partition", seen)

    def _run(self):
        producer = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": self.timeout_ms,
                "topic.metadata.refresh.interval.ms": 1000,
                "socket.timeout.ms": 3000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
            | self.more
        )
        try:
            self._write(producer)
            # A single flush has been seen to return after a new producer epoch, although records were left.
            deadline = time.monotonic() + LIMIT_S
            while len(producer) and time.monotonic() < deadline:
                producer.flush(1)
        except Exception as error:  # noqa: BLE001 - a thread that just ended would look like a slow one
            self.lost.append(f"the producer ended with {error!r}")
        if len(producer):
            self.lost.append(f"{len(producer)} records were neither acknowledged nor refused")

    def _write(self, producer):
        written = 0
        while not self._ends.is_set():
            for topic, partition in self.which:
                value = b"%d" % written
                while not self._produced(producer, topic, value.ljust(self.size), partition):
                    producer.poll(0.1)
                written += 1
            producer.poll(0)
            self._ends.wait(self.pause_s)

    def _produced(self, producer, topic, value, partition):
        """Passes a record to the producer. Returns False if the producer did not take it. A broker of Apache Kafka in
        ZooKeeper mode that has just started reports every topic as unknown."""
        try:
            producer.produce(topic, value, partition=partition, on_delivery=self._delivered)
        except KafkaException as error:
            if self._with_apache and error.args[0].code() == KafkaError._UNKNOWN_TOPIC:
                return False
            raise
        return True

    def _delivered(self, error, message):
        if error is not None:
            self.lost.append(error)
        else:
            self.acknowledged[message.topic(), message.partition()].append(message.value())
