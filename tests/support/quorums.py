"""Quorums of several controller processes, and one broker of ours. Each controller is ours or Apache Kafka's.

`MixedQuorum(path, {1: "kafkacore", 2: "apache-4.3", ...}, tools, dynamic=True)` formats and starts the nodes. All nodes
have the same configuration keys. Only the programs that run on their directories differ.
"""

import os
import subprocess
from pathlib import Path

from asking import ask
from brokers import APACHE, APACHE_START_TIMEOUT_S, java
from kafkacore.protocol.messages import CreateTopicsRequest, DescribeQuorumRequest, MetadataRequest
from kafkacore.protocol.uuid import Uuid
from kafkacore.runtime.ports import free_ports
from processes import ROOT, Child, accepts, wait_until

OURS = "kafkacore"
CLUSTER_ID = "kafkacorePeerAAAAAAAAA"
METADATA = "__cluster_metadata"
BROKER_ID = 100
# Five Java processes on two cores can be silent for a while. A test loses more time to an unnecessary election than to
# the wait for a necessary one.
TIMEOUTS = {"controller.quorum.election.timeout.ms": "2000", "controller.quorum.fetch.timeout.ms": "4000"}
LIMIT_S = 90
LINES_OF_A_LOG = 25  # how many of its last log lines each node shows when a wait times out
ELECTIONS = 30  # how often a test lets the voters elect a leader until the wanted voter wins
# With these settings, our voters let a voter of Apache Kafka become candidate first.
PATIENCE = {"controller.quorum.election.timeout.ms": 6000, "controller.quorum.fetch.timeout.ms": 6000}


class Member:
    """A node of the cluster in a process of its own. `kind` is OURS or a name in APACHE. `network` is the name of the
    node's network namespace, or None. `jvm` replaces the JVM options for a quick start."""

    start_limit_s = APACHE_START_TIMEOUT_S

    def __init__(self, directory, node_id, kind, settings, network=None, jvm=None):
        self.node_id, self.kind, self.network, self.jvm = node_id, kind, network, jvm
        self.directory = Path(directory)
        self.data = self.directory / "data"
        self.log = self.directory / "node.log"
        self.directory.mkdir(parents=True)
        self.properties = self.directory / "server.properties"
        settings = {"node.id": node_id, "log.dirs": self.data, **settings}
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self.child, self.overrides = None, {}
        self.log4j = None  # a logging configuration for Apache Kafka; None: the same as for all brokers

    @property
    def ours(self):
        return self.kind == OURS

    def command(self):
        inside = ["ip", "netns", "exec", self.network] if self.network else []
        if self.ours:
            overrides = [f"--override={key}={value}" for key, value in self.overrides.items()]
            return [*inside, ROOT / ".venv" / "bin" / "kafkacore", "start", self.properties, *overrides]
        kafka = [*java(APACHE[self.kind], "256m", self.jvm, self.log4j), "kafka.Kafka", self.properties]
        # If pytest is killed, the kernel also kills the node.
        return [*inside, "setpriv", "--pdeathsig", "KILL", "--", *kafka]

    def format(self, tools, *options):
        """Formats the directory with the tool of the node's kind."""
        arguments = ["format", "--cluster-id", CLUSTER_ID, "--config", self.properties, *options]
        if self.ours:
            command = [ROOT / ".venv" / "bin" / "kafkacore", "storage", *arguments]
            subprocess.run([str(word) for word in command], check=True, capture_output=True, timeout=60)
        else:
            tools[self.kind].run("kafka-storage", *arguments)

    def start(self, address):
        self.launch()
        self.wait_ready(address)

    def launch(self):
        assert not self.alive(), f"{self.kind} {self.node_id} is already running"
        # At INFO, our node logs its elections. ci/peers/log4j2.properties sets the level for the elections of Apache
        # Kafka.
        self.child = Child(self.command(), self.log, env={"KAFKACORE_LOG_LEVEL": "INFO"} | os.environ)

    def wait_ready(self, address):
        self.child.wait_ready(lambda: accepts(address), self.start_limit_s, f"{self.kind} {self.node_id}")

    def kill(self):
        return self.child.kill()

    def stop(self):
        return self.child.terminate()

    def pause(self):
        """Sends SIGSTOP. The process keeps its sockets open, but sends nothing."""
        self.child.pause()

    def resume(self):
        self.child.resume()

    def alive(self):
        return self.child is not None and self.child.alive()

    def seen(self):
        """Returns a text that shows whether the node is alive, its vote on disk, and the last lines of its log."""
        if self.child is None:
            return f"--- {self.kind} {self.node_id}: never started"
        exit_status = self.child.process.poll()
        life = f"pid {self.child.pid} is alive" if exit_status is None else f"exited with {exit_status}"
        vote = self.data / f"{METADATA}-0" / "quorum-state"
        state = vote.read_text().strip() if vote.exists() else "no file"
        tail = self.child.tail(LINES_OF_A_LOG)
        return f"--- {self.kind} {self.node_id}: {life}; quorum-state: {state}; end of {self.log}:\n{tail}"

    def batches(self, topic, partition):
        """Returns the bytes of each batch of a partition's log, by base offset. Leaves out a torn last batch."""
        found = {}
        for segment in sorted(
            self.directory.glob(f"*/{topic}-{partition}/*.log")
        ):  # a node may have several directories
            data, at = segment.read_bytes(), 0
            while at + 61 <= len(data):
                size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
                if size <= 12 or at + size > len(data):
                    break
                found[int.from_bytes(data[at : at + 8], "big")] = data[at : at + size]
                at += size
        return found

    def metadata_batches(self):
        return self.batches(METADATA, 0)


def members_seen(members, describe):
    """Returns the text for a wait that times out: the state of each node, and the quorum as each live controller
    describes it."""
    described = [f"DescribeQuorum of {node_id}: {describe(node_id)}" for node_id in members if members[node_id].alive()]
    return "\n".join([*described, *(member.seen() for member in members.values())])


class MixedQuorum:
    """A quorum of controllers, given by node id and kind, and a broker of the kind `broker` with the id BROKER_ID.

    The controllers in `later` are not among the first voters, and `start_later` starts one of them. `overrides` apply
    to controllers only. With `network` (Namespaces), each node is a separate host in that network.
    """

    def __init__(self, path, kinds, tools, *, dynamic, broker=OURS, later=None, overrides=None, network=None):
        self.path, self.tools, self.dynamic = Path(path), tools, dynamic
        members = kinds | (later or {})
        ids = [*members, BROKER_ID]
        hosts = ["127.0.0.1" if network is None else network.host(node_id) for node_id in ids]
        places = [f"{host}:{port}" for host, port in zip(hosts, free_ports(len(ids)), strict=True)]
        inside = [None if network is None else network.add(node_id) for node_id in ids]
        self.addresses = dict(zip(members, places, strict=False))
        self.first_voters = list(kinds)
        self.bootstrap = places[-1]
        self.overrides = overrides or {}
        self.controllers = {
            node_id: Member(self.path / str(node_id), node_id, kind, self.controller_settings(node_id), namespace)
            for (node_id, kind), namespace in zip(members.items(), inside, strict=False)
        }
        self.broker = Member(self.path / "broker", BROKER_ID, broker, self.broker_settings(), inside[-1])
        self.topics = 0

    def shared_settings(self):
        if self.dynamic:
            quorum = {"controller.quorum.bootstrap.servers": ",".join(self.addresses.values())}
        else:
            voters = ",".join(f"{node_id}@{address}" for node_id, address in self.addresses.items())
            quorum = {"controller.quorum.voters": voters}
        return {
            **quorum,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "offsets.topic.replication.factor": "1",
            **TIMEOUTS,
        }

    def controller_settings(self, node_id):
        return {
            "process.roles": "controller",
            "listeners": f"CONTROLLER://{self.addresses[node_id]}",
            **self.shared_settings(),
            **self.overrides,
        }

    def broker_settings(self):
        return {"process.roles": "broker", "listeners": f"PLAINTEXT://{self.bootstrap}", **self.shared_settings()}

    def format(self, release=None):
        options = ["--release-version", release] if release else []
        if self.dynamic:
            initial = ",".join(
                f"{node_id}@{self.addresses[node_id]}:{Uuid(bytes([node_id]) * 16)}" for node_id in self.first_voters
            )
            voters, others = ["--initial-controllers", initial], ["--no-initial-controllers"]
        else:
            voters, others = [], []
        for node_id, member in self.controllers.items():
            member.format(self.tools, *options, *(voters if node_id in self.first_voters else others))
        self.broker.format(self.tools, *options, *others)

    def start(self):
        for node_id in self.first_voters:
            self.controllers[node_id].start(self.addresses[node_id])
        self.leader()
        self.broker.start(self.bootstrap)
        return self

    def start_later(self, node_id):
        """Starts a controller of `later`. It only follows until a test adds it to the voters."""
        self.controllers[node_id].start(self.addresses[node_id])

    def voters(self):
        """Returns the voters' ids and directory ids, as the active controller describes them."""
        described = self.describe(self.leader())
        return {each.replica_id: each.replica_directory_id for each in described.current_voters}

    def close(self):
        for member in [self.broker, *self.controllers.values()]:
            if member.alive():
                member.kill()

    def wait(self, condition, what):
        """Waits at most LIMIT_S for the condition. If the time runs out, the error shows the state of every node."""

        def seen():
            return f"{members_seen(self.controllers, self.describe)}\n{self.broker.seen()}"

        return wait_until(condition, LIMIT_S, what, seen)

    def describe(self, node_id):
        """Returns the metadata partition as one controller describes it (DescribeQuorum), or None if that controller
        knows no leader."""
        request = DescribeQuorumRequest(
            topics=[
                DescribeQuorumRequest.TopicData(
                    topic_name=METADATA,
                    partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)],
                )
            ]
        )
        try:
            answer = ask(self.addresses[node_id], request, 2)
        except OSError:
            return None
        if answer.error_code or answer.topics[0].partitions[0].error_code:
            return None
        return answer.topics[0].partitions[0]

    def leader(self):
        """Waits until a live controller says that it is the leader, and returns its node id."""

        def found():
            for node_id, member in self.controllers.items():
                if member.alive() and (answer := self.describe(node_id)) and answer.leader_id == node_id:
                    return node_id
            return None

        return self.wait(found, "an active controller")

    def make_leader_of_kind(self, ours):
        """Makes a controller of our kind the leader if `ours`, else one of Apache Kafka. Kills all controllers of the
        other kind, and starts them again. Returns the new leader.

        Starts the killed controllers again once the remaining ones have a leader. If the remaining controllers are not
        a majority, the killed ones start at once. They wait for their election timeout, and vote meanwhile. One of them
        can still win the election, and then this method tries again. Our voters become candidates sooner than Apache
        Kafka's voters, so ours get longer timeouts if Apache Kafka's voters are to win.
        """
        for node_id, member in self.controllers.items():
            if ours and member.overrides:
                member.kill()
                member.overrides = {}
                member.start(self.addresses[node_id])
        for _ in range(ELECTIONS):
            leader = self.leader()
            if self.controllers[leader].ours == ours:
                return leader
            self.wait_equal()
            others = {node_id: member for node_id, member in self.controllers.items() if member.ours != ours}
            for member in others.values():
                member.kill()
            if 2 * len(others) < len(self.controllers):
                self.leader()
            for node_id, member in others.items():
                member.overrides = PATIENCE if member.ours else {}
                member.start(self.addresses[node_id])
        raise AssertionError(
            f"no controller {'of ours' if ours else 'of Apache Kafka'} was elected in {ELECTIONS} elections"
        )

    def next_leader(self, last):
        return self.wait(lambda: (now := self.leader()) != last and now, f"a leader other than {last}")

    def create_topic(self):
        """Creates a topic through the broker, which forwards the request to the active controller. Returns the topic's
        name."""
        self.topics += 1
        name = f"topic-{self.topics}"
        topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=2, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=20_000)

        def created():
            try:
                answer = ask(self.bootstrap, request, 5)
            except OSError:
                return False
            # TOPIC_ALREADY_EXISTS means that the controller committed an earlier attempt, whose response was lost
            # together with the leader.
            return answer.topics[0].error_code in (0, 36)

        self.wait(created, f"{name} created")
        return name

    def visible_topics(self):
        answer = ask(self.bootstrap, MetadataRequest(topics=None), 5)
        return {topic.name for topic in answer.topics}

    def wait_visible(self, names):
        self.wait(lambda: set(names) <= self.visible_topics(), f"{names} in Metadata")

    def wait_equal(self):
        """Waits until every live controller has all records that the leader has committed by now."""
        leader = self.leader()
        end = self.describe(leader).high_watermark

        def caught_up():
            answer = self.describe(leader)
            alive = {node_id for node_id, member in self.controllers.items() if member.alive()}
            return answer and all(
                voter.log_end_offset >= end for voter in answer.current_voters if voter.replica_id in alive
            )

        self.wait(caught_up, f"every controller at offset {end}")
        return end

    def assert_logs_agree(self, end, at_least=4):
        """Checks that a batch below `end` has the same bytes on all nodes that have it. At least `at_least` batches
        must be on two nodes or more."""
        logs = {node_id: member.metadata_batches() for node_id, member in self.controllers.items()}
        logs[BROKER_ID] = self.broker.metadata_batches()
        seen = {}
        for node_id, batches in logs.items():
            for offset, data in batches.items():
                if offset < end:
                    other, expected = seen.setdefault(offset, (node_id, data))
                    assert data == expected, f"offset {offset} differs between {other} and {node_id}"
        assert len(seen) >= at_least, "the nodes have too few batches in common"
