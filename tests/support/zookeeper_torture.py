"""Clusters in ZooKeeper mode that run for an hour with faults: brokers, an ensemble of three ZooKeeper servers, and the
links between all of them. `torture` has the clients and the faults that both modes share."""

import contextlib

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

import replicated
import torture
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import MetadataRequest
from kafkacore.zookeeper import paths
from process_cluster import answered
from replicated import Replicated
from zookeeper_cluster import APACHE, ZooKeeperCluster

SERVERS = (11, 12, 13)  # the node ids of the ZooKeeper servers
CONNECT_S = 15
SETTINGS = (
    replicated.SETTINGS
    | torture.SETTINGS
    | {
        # A broker that starts during a fault of ZooKeeper waits until the end of the fault.
        "zookeeper.connection.timeout.ms": "60000",
    }
)


class TorturedCluster(Replicated, ZooKeeperCluster):
    """Brokers, given by id and kind, and three ZooKeeper servers. `members` has all of them by node id."""

    def __init__(self, path, kinds, network=None):
        places = network and [(network.host(node_id), network.add(node_id)) for node_id in SERVERS]
        options = {"places": places}
        super().__init__(path, kinds, SETTINGS, servers=len(SERVERS), zookeeper=options, network=network)
        self.bootstrap = ",".join(self.addresses.values())
        self.servers = dict(zip(SERVERS, self.zookeeper.servers, strict=True))

    bootstrap = None  # the addresses of all brokers, not only of those that are alive

    @property
    def members(self):
        return self.brokers | self.servers

    def ask(self, node_id, request, version):
        """Returns the response of one broker, or None if the broker does not respond."""
        return answered(self.addresses[node_id], request, version)

    def ask_controller(self, request, version, accepts=lambda answer: True):
        """Asks each broker that a live broker names as the controller. A broker without ZooKeeper may still name a
        former controller. Brokers in ZooKeeper mode forward nothing."""
        for node_id in self.live():
            named = self.ask(node_id, MetadataRequest(topics=[]), 9)
            if named is not None and named.controller_id in self.brokers:
                answer = self.ask(named.controller_id, request, version)
                if answer is not None and accepts(answer):
                    return answer
        return None

    def leader(self):
        """Waits until all brokers name the same controller. Returns its id."""
        return self.wait(self.controller, "a controller that all live brokers name")

    def wait_unfenced(self):
        assert sorted(self.brokers) == self.live(), self.seen()  # no broker has exited
        self.wait_members(self.brokers)

    def change_zookeeper(self, change):
        """Calls `change` with a client of ZooKeeper."""
        client = KazooClient(f"{self.zookeeper.connect}/kafka")
        client.start(timeout=CONNECT_S)
        try:
            return change(client)
        finally:
            client.stop()
            client.close()

    def ensemble_serves(self):
        """Returns whether a new client can open a session within CONNECT_S seconds."""
        try:
            self.change_zookeeper(lambda client: client.exists("/"))
        except (KazooException, KazooTimeoutError):
            return False
        return True

    def session_of(self, node_id):
        """Returns the id of the session in which a broker is registered, or None if it is not registered."""
        stat = self.change_zookeeper(lambda client: client.exists(paths.broker(node_id)))
        return stat and stat.ephemeralOwner

    def expire(self, session_id):
        """Ends a session of another client. A client that knows the id and the password of a session may continue and
        end it."""
        client = KazooClient(self.zookeeper.connect, client_id=(session_id, password_of(session_id)))
        client.start(timeout=CONNECT_S)
        client.stop()
        client.close()


def password_of(session_id):
    """Returns the password that ZooKeeper derives from the id of a session: 16 bytes of java.util.Random."""
    state = (session_id ^ 0xB3415C00 ^ 0x5DEECE66D) & (2**48 - 1)
    password = b""
    while len(password) < 16:
        state = (state * 0x5DEECE66D + 0xB) & (2**48 - 1)
        password += (state >> 16).to_bytes(4, "little")
    return password


class ZooKeeperFaults(torture.Faults):
    """Also breaks ZooKeeper servers, the controller, and the sessions of brokers. Acknowledged records survive all of
    that."""

    # A broker that is started while ZooKeeper is down does not become ready.
    alone = ("all_of_zookeeper_killed", "all_of_zookeeper_stopped")
    # A broker that is down cannot get replicas.
    answers_to_reassignments = frozenset({ErrorCode.NONE, ErrorCode.INVALID_REPLICA_ASSIGNMENT})

    def __init__(self, cluster, *rest):
        super().__init__(cluster, *rest)
        brokers, servers = list(cluster.brokers), list(cluster.servers)
        self.nodes = {
            "killed": lambda: brokers,
            "stopped_and_continued": lambda: brokers,
            "restarted": lambda: brokers,
            "controller_killed": lambda: [cluster.leader()],
            "controller_stopped": lambda: [cluster.leader()],
            "server_killed": lambda: servers,
            "ensemble_leader_killed": self.ensemble_leaders,
            "ensemble_leader_stopped": self.ensemble_leaders,
            "session_expired": lambda: brokers,
            "without_zookeeper": lambda: brokers,
        }
        self.kinds += [
            self.controller_killed, self.controller_stopped, self.controller_moved, self.server_killed,
            self.ensemble_leader_killed, self.ensemble_leader_stopped, self.all_of_zookeeper_killed,
            self.all_of_zookeeper_stopped, self.session_expired,
        ]  # fmt: skip
        if self.network is not None:
            self.kinds.append(self.without_zookeeper)

    def wait_whole(self):
        """Waits as for a KRaft cluster. ZooKeeper 3.8.4 itself sometimes accepts no session any more after its leader
        was stopped. In that case this method restarts all its servers, as an operator would."""
        if not self.cluster.ensemble_serves():
            self.done[-1] += "; ZooKeeper serves no more and is restarted"
            with self.all_of_zookeeper_killed(None):
                pass
        super().wait_whole()

    def ensemble_leaders(self):
        leader = self.cluster.zookeeper.leader()
        return [node_id for node_id, server in self.cluster.servers.items() if server is leader]

    def targets(self, kinds):
        """Chooses a node for each fault, from those that the fault can break. Does not choose a node twice."""
        found = []
        for kind in kinds:
            possible = self.nodes.get(kind.__name__, lambda: list(self.cluster.members))()
            others = [each for each in self.cluster.brokers if each not in found]
            found.append(self.choices.choice([each for each in possible if each not in found] or others))
        return found

    def start_again(self, node_id):
        broker = self.cluster.brokers.get(node_id)  # None if the node is a ZooKeeper server
        if broker is not None and broker.kind == APACHE:
            # A broker of Apache Kafka exits if it finds the registration of its former session.
            self.cluster.wait(lambda: self.is_unregistered(node_id), f"the former session of {node_id} has ended")
        super().start_again(node_id)

    def is_unregistered(self, node_id):
        with contextlib.suppress(KazooException, KazooTimeoutError):  # another fault may have stopped a server
            return self.cluster.session_of(node_id) is None
        return False

    def controller_killed(self, node_id):
        return self.killed(node_id)

    def controller_stopped(self, node_id):
        return self.stopped_and_continued(node_id)

    def server_killed(self, node_id):
        return self.killed(node_id)

    def ensemble_leader_killed(self, node_id):
        return self.killed(node_id)

    def ensemble_leader_stopped(self, node_id):
        return self.stopped_and_continued(node_id)

    @contextlib.contextmanager
    def controller_moved(self, _):
        """Deletes `/controller`, as an administrator does who wants another controller."""
        with contextlib.suppress(Exception):  # another fault may have stopped the ensemble
            self.cluster.change_zookeeper(lambda client: client.delete(paths.CONTROLLER))
        yield

    @contextlib.contextmanager
    def session_expired(self, node_id):
        with contextlib.suppress(Exception):
            session_id = self.cluster.session_of(node_id)
            if session_id:
                self.cluster.expire(session_id)
        yield

    @contextlib.contextmanager
    def all_of_zookeeper_killed(self, _):
        for server in self.cluster.servers.values():
            server.kill()
        yield
        for server in self.cluster.servers.values():
            server.launch()
        for server in self.cluster.servers.values():
            server.wait_ready()

    @contextlib.contextmanager
    def all_of_zookeeper_stopped(self, _):
        for server in self.cluster.servers.values():
            server.pause()
        yield
        for server in self.cluster.servers.values():
            server.resume()

    @contextlib.contextmanager
    def without_zookeeper(self, node_id):
        """Cuts a broker off from all ZooKeeper servers. Clients and other brokers can still reach it."""
        self.network.cut([node_id], list(self.cluster.servers))
        yield
        self.network.heal()
