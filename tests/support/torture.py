"""Clients and faults that run for an hour against real processes.

`Clients(cluster, path)` writes with confluent-kafka and with Apache Kafka's verifiable producer. Both are idempotent.
It reads with one consumer group of each library. `Faults(cluster, network, disks)` breaks nodes and heals them again.
"""

import contextlib
import itertools
import json
import logging
import os
import random
import subprocess
import threading
import time

from confluent_kafka import Consumer, KafkaError, TopicPartition

from brokers import APACHE, java
from kafkacore.protocol.errors import ErrorCode
from process_cluster import LIMIT_S
from processes import Child, wait_until
from record_checks import GroupRecord, problems_of_log
from replicated import Writes

RELEASE = "apache-4.3"
# The replicas of topic SPREAD are on all brokers. Those of topic MOVING are on two of the three brokers, and
# reassignments move them.
SPREAD, MOVING = "spread", "moving"
PARTITIONS, MOVING_PARTITIONS = 4, 2
JAVA_RECORDS_PER_S = 100
KEYS = 50  # the number of keys that the Java producer uses, large enough for each partition to get records
COMMIT_RECORDS = 200
LOST_POSITION = KafkaError._AUTO_OFFSET_RESET
MEMBER_LIFE_S = (4, 15)
DISK_MIB = 1024
FOREVER_MS = 2**31 - 1
# When a broker refuses a sequence number in one partition, librdkafka begins a new producer epoch, and gives new
# numbers to the records in flight of all partitions: https://github.com/confluentinc/librdkafka/issues/4953
RENUMBERING = ("confluent-kafka",)
# The possible durations of a fault. The session of a broker ends after four seconds.
HOLD_S = (0.3, 1.5, 6.0)
TWO_AT_ONCE = 0.3  # the share of faults during which a second fault happens
SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
    "log.segment.bytes": "1048576",
}


class Epochs(logging.Handler):
    """Collects what librdkafka logs about new epochs of its producer, and about the answers that caused them."""

    def __init__(self):
        super().__init__()
        self.said = []
        self.logger = logging.getLogger(f"librdkafka.{id(self)}")
        self.logger.setLevel(logging.DEBUG)
        self.logger.propagate = False
        self.logger.addHandler(self)

    def emit(self, record):
        line = record.getMessage()
        if any(each in line for each in ("epoch bump", "bumped epoch", "ERRSEQ", "UNKPID", "ERRPID")):
            self.said.append(line)

    def problems(self):
        """Returns the log lines of unexpected new epochs. A new epoch is expected only if a batch was refused because
        an earlier batch had been refused."""
        return [each for each in self.said if " epoch bump " in each and not each.endswith("skipped sequence numbers")]


class PlacedWrites(Writes):
    """Writes that never give up on a record. Stores the offset that each acknowledgement contains."""

    def __init__(self, cluster, which):
        self.epochs = Epochs()
        super().__init__(cluster, which, timeout_ms=0, debug="eos", logger=self.epochs.logger)
        self.records = {each: [] for each in self.which}

    def _delivered(self, error, message):
        super()._delivered(error, message)
        if error is None:
            # A broker that receives a batch for the second time does not always know its offset.
            offset = -1 if message.offset() is None else message.offset()
            self.records[message.topic(), message.partition()].append((offset, message.value()))


def number(record):
    """Returns how many records the producer sent before this one."""
    return int(record[1].split(b".")[-1])


class JavaProcess:
    """One of Apache Kafka's verifiable clients in a process of its own. A thread passes each line that the client
    prints to `event`."""

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
        """Asks the client to stop, and waits until it has printed everything."""
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
    """A group with one member, which commits after each poll."""

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
    """Members of a confluent-kafka group, each on a thread. A member commits what it has read, leaves the group, and
    comes back after a while."""

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
                self.group.problems.append(f"a confluent-kafka member was still running after {LIMIT_S} s")

    def _run(self, choices):
        try:
            while not self._ends.is_set():
                self._live(time.monotonic() + choices.uniform(*MEMBER_LIFE_S))
        except Exception as error:  # noqa: BLE001 - if the thread just ended, the group would look idle
            self.group.problems.append(f"a member failed with {error!r}")

    def _live(self, until):
        floors, ends, asked = {}, {}, []
        with self._lock:
            reset = "error" if len(self.group.committed) == PARTITIONS else "earliest"

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
            "auto.offset.reset": reset, "session.timeout.ms": 6000, "heartbeat.interval.ms": 500,
            "socket.timeout.ms": 4000, "reconnect.backoff.max.ms": 500, "topic.metadata.refresh.interval.ms": 1000,
            "on_commit": committed, "log_level": 0,
        })  # fmt: skip
        try:
            consumer.subscribe([SPREAD], on_assign=assigned)
            while time.monotonic() < until and not self._ends.is_set():
                got = consumer.consume(COMMIT_RECORDS, 0.2)
                if lost := [each for each in got if each.error() and each.error().code() == LOST_POSITION]:
                    self._check_lost(lost, floors)
                    return
                messages = [each for each in got if each.error() is None]
                if not messages:
                    continue
                with self._lock:
                    for message in messages:
                        self.group.reads(floors, message.partition(), message.offset(), message.offset())
                ends |= {each.partition(): each.offset() + 1 for each in messages}
                # Only one commit is in flight, because librdkafka may send commits again in the wrong order when the
                # coordinator moves. The thread does not block until the commit is answered, because librdkafka's
                # synchronous commit may never return in that case.
                if not asked:
                    asked += [TopicPartition(SPREAD, each, end) for each, end in ends.items()]
                    consumer.commit(offsets=asked)
        finally:
            consumer.close()

    def _check_lost(self, lost, floors):
        """Checks why a member has lost its positions. A new member may have asked a deposed leader that does not know
        of its successor, and whose log ends before the position. The commits contain no leader epoch, so the consumer
        cannot notice this (KIP-320). It leaves the group, and asks again when it comes back."""
        with self._lock:
            self.group.problems += [
                f"{self.group.name} found no commit of {each.partition()}, after {floors[each.partition()]}"
                for each in lost
                if floors.get(each.partition()) and "no previously committed offset" in each.error().str()
            ]


class Clients:
    """All producers and consumers, running from before the first fault until after the last: `with Clients(...) as
    clients`."""

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
        """Returns the records of one partition by producer, in the order in which the producer sent them. The answers
        may come in another order, because the Java client sends to a new leader while a request to the old leader is
        still unanswered."""
        told = {"confluent-kafka": self.confluent.records[where], "the Java client": self.java.records.get(where, [])}
        return {producer: sorted(records, key=number) for producer, records in told.items()}

    def wait_read(self):
        """Waits until both groups have read all acknowledged records."""
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
        """Returns a sentence for each problem in a replica's log or in a group. Reads each partition from each
        replica."""
        found = [f"a producer gave up: {each}" for each in (*self.confluent.lost, *self.java.lost)]
        found += [*self.confluent.epochs.problems(), *self.group.group.problems, *self.java_group.group.problems]
        for (topic, partition), state in self.cluster.partitions(SPREAD, MOVING).items():
            acknowledged = self.acknowledged((topic, partition))
            for node_id in state.replicas:
                log = self.cluster.read_records(node_id, topic, partition, sum(map(len, acknowledged.values())))
                found += problems_of_log(f"{topic}-{partition} of {node_id}", log, acknowledged, RENUMBERING)
            self.cluster.assert_replicas_agree(topic, partition, state.replicas)
        return found


class SmallDisk:
    """A tmpfs that a test can fill at any moment."""

    def __init__(self, path):
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "none", path], check=True, capture_output=True
        )

    def fill(self):
        """Leaves no free space. The new size must not be below the used space, so the method retries if the used space
        has grown."""

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


def small_disks(brokers, network, undo):
    """Gives each broker a small disk. Returns the disks by node id, or nothing if there is no network, because then
    this user may not mount disks either. `undo` unmounts the disks."""
    disks = {}
    for node_id, member in brokers.items() if network is not None else ():
        disks[node_id] = SmallDisk(member.data)
        undo.callback(disks[node_id].close)
    return disks


def create_topics(cluster):
    ids = list(cluster.brokers)
    cluster.create(SPREAD, [ids[at % 3 :] + ids[: at % 3] for at in range(PARTITIONS)], min_insync_replicas="2")
    cluster.create(MOVING, [ids[:2]] * MOVING_PARTITIONS, min_insync_replicas="1")


class Faults:
    """Breaks nodes and heals them. The seed decides the order of the faults. `done` has a line for each fault.

    Without network namespaces it does not cut links, and without small disks it does not fill disks. `alone` has the
    faults during which no second fault happens.
    """

    alone = ()
    # The answers that a partition may get when it is reassigned.
    answers_to_reassignments = frozenset({ErrorCode.NONE})

    def __init__(self, cluster, clients, seed, network=None, disks=None):
        self.cluster, self.clients, self.network, self.disks = cluster, clients, network, disks or {}
        self.seed, self.choices = seed, random.Random(seed)
        self.done, self.began = [], time.monotonic()
        self.chosen = []
        self.kinds = [self.killed, self.stopped_and_continued, self.restarted, self.reassigned, self.all_preferred]
        if network is not None:
            self.kinds += [self.cut_off, self.deaf]
        if self.disks:
            self.kinds += [self.full]

    def run(self, seconds):
        """Causes faults until the time has run out. Every kind of fault happens at least once, and the order changes
        from round to round. Finally prints what happened."""
        deadline = self.began + seconds
        try:
            while True:
                for kind in self.choices.sample(self.kinds, len(self.kinds)):
                    self.one(kind)
                if time.monotonic() > deadline:
                    return
        finally:
            said = self.clients.confluent.epochs.said
            print(f"seed {self.seed}, {self.clients.count()} records:", *self.done, *said, sep="\n")

    def one(self, kind):
        kinds = [kind]
        if kind.__name__ not in self.alone and self.choices.random() < TWO_AT_ONCE:
            kinds.append(self.choices.choice([each for each in self.kinds if each.__name__ not in self.alone]))
        nodes = self.chosen = self.targets(kinds)
        with contextlib.ExitStack() as healed:
            for each, node_id in zip(kinds, nodes, strict=True):
                hold_s = self.choices.choice(HOLD_S)
                at = time.monotonic() - self.began
                self.done.append(f"{at:.1f} s: {each.__name__} {node_id} for {hold_s} s")
                healed.enter_context(each(node_id))
                time.sleep(hold_s)  # the duration of the fault, not a wait for a condition
        self.wait_whole()

    def targets(self, kinds):
        """Chooses a node for each fault."""
        return self.choices.sample(list(self.cluster.members), len(kinds))

    def wait_whole(self):
        """Waits until every node serves requests, every replica is in sync, and each partition accepts records."""
        took = []
        for what, wait in (
            ("an active controller", self.cluster.leader),
            ("all brokers unfenced", self.cluster.wait_unfenced),
            ("all in sync", lambda: self.cluster.wait_in_sync(SPREAD, MOVING, count=PARTITIONS + MOVING_PARTITIONS)),
            ("new records", self.clients.wait_progress),
        ):
            began = time.monotonic()
            wait()
            took.append(f"{what} after {time.monotonic() - began:.1f} s")
        self.done[-1] += f"; then {', '.join(took)}"

    @contextlib.contextmanager
    def killed(self, node_id):
        """Kills a node with SIGKILL. The node may be a leader."""
        self.cluster.members[node_id].kill()
        yield
        self.start_again(node_id)

    def start_again(self, node_id):
        self.cluster.members[node_id].start()

    @contextlib.contextmanager
    def stopped_and_continued(self, node_id):
        member = self.cluster.members[node_id]
        member.pause()
        yield
        member.resume()

    @contextlib.contextmanager
    def restarted(self, node_id):
        """Restarts a node after an orderly stop. While the controllers are unavailable the stop can take long, and then
        this method cuts it short."""
        self.cluster.members[node_id].stop()
        yield
        self.start_again(node_id)

    @contextlib.contextmanager
    def cut_off(self, node_id):
        """Cuts all links between a node and the other nodes. Clients can still reach the node, so even a deposed leader
        receives their requests."""
        self.network.cut([node_id], [each for each in self.cluster.members if each != node_id])
        yield
        self.network.heal()

    @contextlib.contextmanager
    def deaf(self, node_id):
        """Cuts the link from one other node to this node. The opposite direction still works."""
        other = self.choices.choice([each for each in self.cluster.members if each != node_id])
        self.network.cut_one_way(other, node_id)
        yield
        self.network.heal()

    @contextlib.contextmanager
    def full(self, node_id):
        """Fills a broker's disk, then makes room and restarts the node as an operator would. Meanwhile the broker has
        no other fault, because each fault ends with a restart."""
        if node_id not in self.disks:
            node_id = self.choices.choice([each for each in self.disks if each not in self.chosen])
        self.disks[node_id].fill()
        yield
        self.disks[node_id].free()
        self.cluster.members[node_id].kill()
        self.start_again(node_id)

    @contextlib.contextmanager
    def reassigned(self, _):
        """Moves the partitions of one topic to two other brokers, and changes the order of the replicas of the other
        topic."""
        brokers = list(self.cluster.brokers)
        target = {(MOVING, each): self.choices.sample(brokers, 2) for each in range(MOVING_PARTITIONS)}
        target |= {(SPREAD, each): self.choices.sample(brokers, 3) for each in range(PARTITIONS)}
        with contextlib.suppress(TimeoutError):
            self.cluster.reassign(target, self.answers_to_reassignments)
        yield

    @contextlib.contextmanager
    def all_preferred(self, _):
        which = [(SPREAD, each) for each in range(PARTITIONS)] + [(MOVING, each) for each in range(MOVING_PARTITIONS)]
        self.cluster.elect(which)
        yield
