"""Real servers of ZooKeeper 3.8.4, the version that Apache Kafka 3.9 ships: a single server, or an ensemble. Each
server has its own directory.

    with ZooKeeperServer(tmp_path / "zookeeper") as server:
        connect(server.connect)                     # host:port
    with ZooKeeperEnsemble(tmp_path / "ensemble", 3) as ensemble:
        ensemble.leader().kill()                    # SIGKILL; also pause(), resume(), start()

A server does not wait for its disk (`forceSync=no`), because the tests kill processes, not machines. Benchmarks pass
`durable=True`.
"""

import socket
from pathlib import Path

from brokers import APACHE, java, need_jars
from kafkacore.runtime.ports import free_ports
from processes import Child, need, wait_until

RELEASE = APACHE["apache-3.9"]
START_TIMEOUT_S = 60
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


def need_zookeeper():
    """Skips the test if Java or the jars are missing. With CI=true the test fails instead."""
    import shutil

    need(shutil.which("java"), "no java: apt install openjdk-17-jdk-headless maven, then make peers")
    need_jars(RELEASE)


class ZooKeeperServer:
    """A ZooKeeper server. `settings` are added to its configuration, and `properties` are system properties for
    Java."""

    def __init__(
        self, directory, settings=None, properties=None, *,
        durable=False, heap="128m", jvm=None, tick_ms=500, peers=(), number=0, host="127.0.0.1", network=None,
    ):  # fmt: skip
        """`jvm` has JVM options to use instead of those that make the start quick. `peers` has the lines
        `server.N=...` of an ensemble, and `number` is this server's N. Without `peers`, the constructor starts the
        server. `network` is the name of the server's network namespace, in which it has the address `host`."""
        self.directory = Path(directory)
        self.number = number
        self.host, self.network = host, network
        self.port = free_ports(1)[0]
        self.connect = f"{host}:{self.port}"
        self.heap, self.jvm = heap, jvm
        self.properties = {
            "zookeeper.admin.enableServer": "false",
            "zookeeper.forceSync": "yes" if durable else "no",
            "zookeeper.preAllocSize": "1024",
            "zookeeper.jmx.log4j.disable": "true",
            **(properties or {}),
        }
        data = self.directory / "data"
        data.mkdir(parents=True)
        (data / "myid").write_text(str(number))
        self.configuration = self.directory / "zoo.cfg"
        lines = {
            "dataDir": data,
            "clientPort": self.port,
            "clientPortAddress": host,
            "tickTime": tick_ms,  # the shortest session timeout is two ticks
            "initLimit": 60,
            "syncLimit": 10,
            "maxClientCnxns": 0,
            "4lw.commands.whitelist": "*",
            **(settings or {}),
        }
        self.configuration.write_text("".join(f"{key}={value}\n" for key, value in lines.items()) + "\n".join(peers))
        self.child = None
        if not peers:
            self.start()

    def start(self):
        self.launch()
        self.wait_ready()

    def launch(self):
        options = [f"-D{key}={value}" for key, value in self.properties.items()]
        command, *rest = java(RELEASE, self.heap, self.jvm)
        inside = ["ip", "netns", "exec", self.network] if self.network else []
        # If pytest is killed, the kernel also kills the server.
        line = [*inside, "setpriv", "--pdeathsig", "KILL", "--", command, *options, *rest, MAIN, self.configuration]
        self.child = Child(line, self.directory / "server.log")

    def wait_ready(self):
        self.child.wait_ready(lambda: self.mode() is not None, START_TIMEOUT_S, f"ZooKeeper on port {self.port}")

    def ask(self, word):
        """Returns the answer to a four-letter command, or '' if the server does not answer in time."""
        try:
            with socket.create_connection((self.host, self.port), timeout=2) as link:
                link.sendall(word.encode())
                parts = []
                while part := link.recv(65536):
                    parts.append(part)
        except OSError:
            return ""
        return b"".join(parts).decode()

    def mode(self):
        """Returns standalone, leader, follower or read-only, or None if the server does not serve."""
        for line in self.ask("srvr").splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ")
        return None

    @property
    def pid(self):
        return self.child.pid

    def alive(self):
        return self.child is not None and self.child.alive()

    def pause(self):
        self.child.pause()

    def resume(self):
        self.child.resume()

    def kill(self):
        """Sends SIGKILL. A later `start` continues with the same files and port."""
        self.child.kill()

    stop = kill  # an orderly stop writes nothing that a kill would lose

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child is not None:
            self.kill()


class ZooKeeperEnsemble:
    """Servers that replicate. `connect` contains the addresses of all of them. `places` has the host and the network
    namespace of each server."""

    def __init__(self, directory, count=3, settings=None, properties=None, *, places=None, **options):
        ports = free_ports(2 * count)
        places = places or [("127.0.0.1", None)] * count
        peers = [
            f"server.{number}={host}:{ports[2 * number - 2]}:{ports[2 * number - 1]}"
            for number, (host, _) in enumerate(places, 1)
        ]
        self.servers = [
            ZooKeeperServer(
                Path(directory) / f"server-{number}", settings, properties, peers=peers, number=number, host=host,
                network=network, **options,
            )
            for number, (host, network) in enumerate(places, 1)
        ]  # fmt: skip
        self.connect = ",".join(server.connect for server in self.servers)
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.wait_ready()

    def leader(self):
        """Waits until the ensemble has a leader. Returns that server."""
        return wait_until(lambda: self.find("leader"), START_TIMEOUT_S, "a leader of the ensemble")

    def follower(self):
        return wait_until(lambda: self.find("follower"), START_TIMEOUT_S, "a follower in the ensemble")

    def find(self, mode):
        return next((one for one in self.servers if one.alive() and one.mode() == mode), None)

    def stop(self):
        for server in self.servers:
            if server.child is not None:
                server.kill()

    kill = stop

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
