"""Clients and faults for an hour on real processes.

`Clients(cluster, path)` writes with confluent-kafka and with Apache Kafka's verifiable producer, both idempotent, and
reads with one group of each kind. `Faults(cluster, network, disks)` breaks members and heals them again.
"""

import contextlib
import itertools
import json
import os
import random
import subprocess
import threading
import time

from confluent_kafka import Consumer, TopicPartition

from brokers import APACHE, java
from process_cluster import LIMIT_S
from processes import Child, wait_until
from record_checks import GroupRecord, problems_of_log
from replicated import Writes

RELEASE = "apache-4.3"
# Two topics: SPREAD has replicas on all brokers. MOVING has them on two of three, and reassignments move them.
SPREAD, MOVING = "spread", "moving"
PARTITIONS, MOVING_PARTITIONS = 4, 2
JAVA_RECORDS_PER_S = 100
KEYS = 50  # of the Java producer: enough that each partition gets some
COMMIT_RECORDS = 200
MEMBER_LIFE_S = (4, 15)
DISK_MIB = 1024
FOREVER_MS = 2**31 - 1
# A fault is held for one of these times. The session of a broker ends after four seconds.
HOLD_S = (0.3, 1.5, 6.0)
TWO_AT_ONCE = 0.3  # the share of faults that come with a second one
SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
    "log.segment.bytes": "1048576",
}


class PlacedWrites(Writes):
    """Never gives a record up. Keeps the offset that each acknowledgement named."""

    def __init__(self, cluster, which):
        super().__init__(cluster, which, timeout_ms=0)
        self.records = {each: [] for each in self.which}

    def _delivered(self, error, message):
        super()._delivered(error, message)
        if error is None:
            # A broker may no longer know the offset of a batch that it gets a second time.
            offset = -1 if message.offset() is None else message.offset()
            self.records[message.topic(), message.partition()].append((offset, message.value()))


def number(record):
    """How many records the producer had sent before this one."""
    return int(record[1].split(b".")[-1])


class JavaProcess:
    """One of Apache Kafka's verifiable clients. `event` gets each line that it prints, on a thread."""

    def __init__(self, main, path, *arguments):
        command = [*java(APACHE[RELEASE], "128m"), f"org.apache.kafka.tools.{main}", *arguments]
        self.child = Child(
            ["setpriv", "--pdeathsig", "KILL", "--", *command], path / f"{main}.log", stdout=subprocess.PIPE
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self):
        for line in self.child.process.stdout:
            with contextlib.suppress(json.JSONDecodeError):
                self.event(json.loads(line))

    def stop(self):
        """Asks it to end and waits until it has said everything."""
        self.child.process.terminate()
        try:
            self.child.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.child.process.kill()
        self._thread.join()
        self.child.close()


class JavaWrites(JavaProcess):
    def __init__(self, cluster, path):
        self.records, self.lost = {(SPREAD, partition): [] for partition in range(PARTITIONS)}, []
        settings = path / "producer.properties"
        settings.write_text(
            f"enable.idempotence=true\nretries={FOREVER_MS}\ndelivery.timeout.ms={FOREVER_MS}\n"
            f"max.block.ms={FOREVER_MS}\nrequest.timeout.ms=4000\nlinger.ms=5\nreconnect.backoff.max.ms=500\n"
        )
        super().__init__(
            "VerifiableProducer", path, "--bootstrap-server", cluster.bootstrap, "--topic", SPREAD, "--acks", "-1",
            "--throughput", JAVA_RECORDS_PER_S, "--value-prefix", 7, "--repeating-keys", KEYS,
            "--producer.config", settings,
        )  # fmt: skip

    def event(self, event):
        if event["name"] == "producer_send_success":
            where = event["topic"], event["partition"]
            self.records[where].append((event["offset"], event["value"].encode()))
        elif event["name"] == "producer_send_error":
            self.lost.append(event)

    def count(self):
        return sum(map(len, self.records.values()))

    def wait_progress(self, more=10):
        before = self.count()
        wait_until(
            lambda: self.count() >= before + more, LIMIT_S, "new records of the Java producer",
            lambda: f"alive: {self.child.alive()}, refused: {self.lost[:3]}\n{self.child.tail()}",
        )  # fmt: skip


class JavaGroup(JavaProcess):
    """One member that commits after each poll."""

    def __init__(self, cluster, path):
        self.group, self._floors = GroupRecord("the Java group"), {}
        super().__init__(
            "VerifiableConsumer", path, "--bootstrap-server", cluster.bootstrap, "--topic", SPREAD,
            "--group-id", "java", "--session-timeout", 6000, "--reset-policy", "earliest",
        )  # fmt: skip

    def event(self, event):
        if event["name"] == "partitions_assigned":
            self._floors |= self.group.assigned(each["partition"] for each in event["partitions"])
        elif event["name"] == "records_consumed":
            for each in event["partitions"]:
                self.group.reads(self._floors, each["partition"], each["minOffset"], each["maxOffset"])
        elif event["name"] == "offsets_committed" and event["success"]:
            for each in event["offsets"]:
                self.group.commits(each["partition"], each["offset"])


class Group:
    """Members of confluent-kafka on threads. Each commits what it has read, and leaves and comes back after a while."""

    def __init__(self, cluster, seed, members=2):
        self.cluster, self.group = cluster, GroupRecord("the group of confluent-kafka")
        self._lock, self._ends = threading.Lock(), threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(seed + number),), daemon=True)
            for number in range(members)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self):
        self._ends.set()
        for thread in self._threads:
            thread.join(LIMIT_S)
            if thread.is_alive():
                self.group.problems.append(f"a member of confluent-kafka did not end within {LIMIT_S} s")

    def _run(self, choices):
        try:
            while not self._ends.is_set():
                self._live(time.monotonic() + choices.uniform(*MEMBER_LIFE_S))
        except Exception as error:  # noqa: BLE001 - the thread's end must not look like a quiet group
            self.group.problems.append(f"a member ended with {error!r}")

    def _live(self, until):
        floors, ends, asked = {}, {}, []

        def assigned(_, partitions):
            with self._lock:
                floors.clear()
                ends.clear()
                floors.update(self.group.assigned(each.partition for each in partitions))

        def committed(error, partitions):
            asked.clear()
            with self._lock:
                for each in partitions if error is None else ():
                    if each.error is None:
                        self.group.commits(each.partition, each.offset)

        consumer = Consumer({
            "bootstrap.servers": self.cluster.bootstrap, "group.id": "confluent", "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "session.timeout.ms": 6000, "heartbeat.interval.ms": 500,
            "socket.timeout.ms": 4000, "reconnect.backoff.max.ms": 500, "topic.metadata.refresh.interval.ms": 1000,
            "on_commit": committed, "log_level": 0,
        })  # fmt: skip
        try:
            consumer.subscribe([SPREAD], on_assign=assigned)
            while time.monotonic() < until and not self._ends.is_set():
                messages = [each for each in consumer.consume(COMMIT_RECORDS, 0.2) if each.error() is None]
                if not messages:
                    continue
                with self._lock:
                    for message in messages:
                        self.group.reads(floors, message.partition(), message.offset(), message.offset())
                ends |= {each.partition(): each.offset() + 1 for each in messages}
                # One commit at a time: librdkafka sends commits again in another order when the coordinator moves. And
                # without waiting: its synchronous commit may not return then.
                if not asked:
                    asked += [TopicPartition(SPREAD, each, end) for each, end in ends.items()]
                    consumer.commit(offsets=asked)
        finally:
            consumer.close()


class Clients:
    """Everything that writes and reads, from the beginning to the end of the faults: `with Clients(...) as clients`."""

    def __init__(self, cluster, path, seed):
        self.cluster = cluster
        which = [(SPREAD, partition) for partition in range(PARTITIONS)]
        which += [(MOVING, partition) for partition in range(MOVING_PARTITIONS)]
        self.confluent = PlacedWrites(cluster, which)
        self.java = JavaWrites(cluster, path)
        self.java_group, self.group = JavaGroup(cluster, path), Group(cluster, seed)

    def __enter__(self):
        with contextlib.ExitStack() as undo:
            undo.push(self.close)
            self.confluent.__enter__()
            self.java.wait_progress()
            undo.pop_all()
        return self

    def __exit__(self, kind, error, trace):
        try:
            if kind is None:
                self.stop_writing()
                self.wait_read()
        finally:
            self.close()

    def close(self, *_):
        self.stop_writing()
        self.group.stop()
        self.java_group.stop()

    def stop_writing(self):
        if self.java.child.alive():
            self.confluent.__exit__()
            self.java.stop()

    def wait_progress(self):
        self.confluent.wait_progress()
        self.java.wait_progress()

    def count(self):
        return self.confluent.count() + self.java.count()

    def acknowledged(self, where):
        """The records of one partition by producer, in the order in which it sent them. That is not always the order of
        the answers: the Java client sends on to a new leader while a request to the old one is not answered yet."""
        told = {"confluent-kafka": self.confluent.records[where], "the Java client": self.java.records.get(where, [])}
        return {producer: sorted(records, key=number) for producer, records in told.items()}

    def wait_read(self):
        """Both groups read everything that was acknowledged."""
        for group in (self.group.group, self.java_group.group):
            for partition in range(PARTITIONS):
                records = itertools.chain(*self.acknowledged((SPREAD, partition)).values())
                wanted = {offset for offset, _ in records if offset >= 0}
                wait_until(
                    lambda group=group, partition=partition, wanted=wanted: not group.unread(partition, wanted),
                    LIMIT_S, f"{group.name} at the end of {SPREAD}-{partition}",
                    lambda group=group, partition=partition, wanted=wanted: (
                        f"unread: {sorted(group.unread(partition, wanted))[:10]}; committed: {group.committed}"
                    ),
                )  # fmt: skip

    def problems(self):
        """A sentence for each error in a replica's log or in a group; asks each replica for each partition."""
        found = [f"a producer gave up: {each}" for each in (*self.confluent.lost, *self.java.lost)]
        found += [*self.group.group.problems, *self.java_group.group.problems]
        for (topic, partition), state in self.cluster.partitions(SPREAD, MOVING).items():
            acknowledged = self.acknowledged((topic, partition))
            for node_id in state.replicas:
                log = self.cluster.read_records(node_id, topic, partition, sum(map(len, acknowledged.values())))
                found += problems_of_log(f"{topic}-{partition} of {node_id}", log, acknowledged)
            self.cluster.assert_replicas_agree(topic, partition, state.replicas)
        return found


class SmallDisk:
    """A tmpfs that can be full from one moment to the next."""

    def __init__(self, path):
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "none", path], check=True, capture_output=True
        )

    def fill(self):
        """Takes away all that is free. The size may not be below what is used, so it tries again when that grew."""

        def shrunk():
            state = os.statvfs(self.path)
            return self._resize(f"{(state.f_blocks - state.f_bfree) * state.f_frsize}")

        wait_until(shrunk, LIMIT_S, f"{self.path} full")

    def free(self):
        assert self._resize(f"{DISK_MIB}m")

    def _resize(self, size):
        done = subprocess.run(["mount", "-o", f"remount,size={size}", self.path], check=False, capture_output=True)
        return done.returncode == 0

    def close(self):
        subprocess.run(["umount", "-l", self.path], check=True, capture_output=True)


class Faults:
    """Breaks members and heals them, in turns that the seed chooses. `done` has a line for each.

    Without a network of namespaces it cuts no links, and without disks it fills none.
    """

    def __init__(self, cluster, clients, seed, network=None, disks=None):
        self.cluster, self.clients, self.network, self.disks = cluster, clients, network, disks or {}
        self.choices, self.done, self.began = random.Random(seed), [], time.monotonic()
        self.kinds = [self.killed, self.stopped_and_continued, self.restarted, self.reassigned, self.all_preferred]
        if network is not None:
            self.kinds += [self.cut_off, self.deaf]
        if self.disks:
            self.kinds += [self.full]

    def run(self, seconds):
        """Every kind in turn, in an order that changes, until the time is over; at least one of each."""
        deadline = self.began + seconds
        while True:
            for kind in self.choices.sample(self.kinds, len(self.kinds)):
                self.one(kind)
            if time.monotonic() > deadline:
                return

    def one(self, kind):
        nodes = self.choices.sample(list(self.cluster.members), 2)
        kinds = [kind]
        if self.choices.random() < TWO_AT_ONCE:
            kinds.append(self.choices.choice(self.kinds))
        with contextlib.ExitStack() as healed:
            for each, node_id in zip(kinds, nodes, strict=False):
                hold_s = self.choices.choice(HOLD_S)
                at = time.monotonic() - self.began
                self.done.append(f"{at:.1f} s: {each.__name__} {node_id} for {hold_s} s")
                healed.enter_context(each(node_id))
                time.sleep(hold_s)  # so long the fault lasts; nothing is waited for
        self.wait_whole()

    def wait_whole(self):
        """Every member serves again, every replica is in sync, and each partition takes records."""
        took = []
        for what, wait in (
            ("an active controller", self.cluster.leader),
            ("no broker fenced", self.cluster.wait_unfenced),
            ("all in sync", lambda: self.cluster.wait_in_sync(SPREAD, MOVING, count=PARTITIONS + MOVING_PARTITIONS)),
            ("new records", self.clients.wait_progress),
        ):
            began = time.monotonic()
            wait()
            took.append(f"{what} after {time.monotonic() - began:.1f} s")
        self.done[-1] += f"; then {', '.join(took)}"

    @contextlib.contextmanager
    def killed(self, node_id):
        """SIGKILL; a leader, if the choice falls on it."""
        member = self.cluster.members[node_id]
        member.kill()
        yield
        member.start()

    @contextlib.contextmanager
    def stopped_and_continued(self, node_id):
        member = self.cluster.members[node_id]
        member.pause()
        yield
        member.resume()

    @contextlib.contextmanager
    def restarted(self, node_id):
        """An orderly stop. It may take long when the controllers are away, and is ended then."""
        member = self.cluster.members[node_id]
        member.stop()
        yield
        member.start()

    @contextlib.contextmanager
    def cut_off(self, node_id):
        """Its links to all other members are dead. Clients still reach it, so a leader that is deposed hears them."""
        self.network.cut([node_id], [each for each in self.cluster.members if each != node_id])
        yield
        self.network.heal()

    @contextlib.contextmanager
    def deaf(self, node_id):
        """It hears one other member no longer, which hears it."""
        other = self.choices.choice([each for each in self.cluster.members if each != node_id])
        self.network.cut_one_way(other, node_id)
        yield
        self.network.heal()

    @contextlib.contextmanager
    def full(self, _):
        """A broker's disk is full, until an operator makes room and starts the node again."""
        node_id = self.choices.choice(list(self.disks))
        member = self.cluster.members[node_id]
        self.disks[node_id].fill()
        yield
        self.disks[node_id].free()
        member.kill()
        member.start()

    @contextlib.contextmanager
    def reassigned(self, _):
        """The partitions of one topic move on to two other brokers, the replicas of the other change their order."""
        brokers = list(self.cluster.brokers)
        target = {(MOVING, each): self.choices.sample(brokers, 2) for each in range(MOVING_PARTITIONS)}
        target |= {(SPREAD, each): self.choices.sample(brokers, 3) for each in range(PARTITIONS)}
        with contextlib.suppress(TimeoutError):
            self.cluster.reassign(target)
        yield

    @contextlib.contextmanager
    def all_preferred(self, _):
        which = [(SPREAD, each) for each in range(PARTITIONS)] + [(MOVING, each) for each in range(MOVING_PARTITIONS)]
        self.cluster.elect(which)
        yield
