"""Whole brokers as child processes: `kafkacore dev`, and Apache Kafka as a combined KRaft node.

Each has `name`, `bootstrap`, `controller` (host:port or None), `log_dir`, `pid`, `ours`, and `stop()`.
"""

import json
import os
import select
import subprocess
import time
from pathlib import Path

from kafkacore.runtime.ports import free_ports
from processes import PEERS, ROOT, Child, accepts, need

APACHE = {"apache-4.3": "4.3.1", "apache-3.9": "3.9.2"}
APACHE_START_TIMEOUT_S = 60
OUR_START_TIMEOUT_S = 20
TURN_START_TIMEOUT_S = 30  # the start may include the recovery of files that the other broker left


def classpath(release):
    """Returns the jars of one Apache Kafka release, the classes of ci/peers/java, and a quiet log configuration."""
    jars = (PEERS / f"kafka-{release}").resolve()  # the class archive refers to the jars by their resolved paths
    return f"{jars}/*:{ROOT / 'ci' / 'peers'}:{PEERS / 'java'}"


def need_jars(release):
    """Skips the test if the jars of Apache Kafka are missing. With CI=true the test fails instead."""
    need((PEERS / f"kafka-{release}" / ".complete").exists(), f"no jars of Apache Kafka {release}: make peers")


def archive(release):
    """Returns the path of the class archive of a release, which ci/peers.sh makes. With the archive, Java needs half
    the CPU time to start."""
    return PEERS / f"kafka-{release}.jsa"


def java(release, heap, jvm=None, log4j=None):
    """Returns the beginning of a command that runs a class of Apache Kafka's `release` or of ci/peers/java. The command
    contains the JVM options in `jvm`, or by default options for a quick start. `log4j` is the file of a logging
    configuration."""
    if jvm is not None:
        return ["java", *jvm, log_configuration(release, log4j), "-cp", classpath(release)]
    return [
        "java", f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
        # If the archive is missing, or was made by another version of Java, the program starts anyway, and Java prints
        # no warning.
        f"-XX:SharedArchiveFile={archive(release)}", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr",
        log_configuration(release, log4j), "-cp", classpath(release),
    ]  # fmt: skip


def log_configuration(release, file=None):
    old = release.startswith("3.")
    file = file or ROOT / "ci" / "peers" / ("log4j.properties" if old else "log4j2.properties")
    return f"-Dlog4j.configuration=file:{file}" if old else f"-Dlog4j2.configurationFile={file}"


class ExternalBroker:
    """A broker that the tests did not start. Its log directory may be unknown."""

    def __init__(self, bootstrap, controller=None, log_dir=None, *, name="external", ours=False):
        self.name, self.bootstrap, self.controller, self.ours = name, bootstrap, controller, ours
        self.log_dir = Path(log_dir) if log_dir else None
        self.pid = None

    def stop(self):
        """Does nothing, because the tests did not start this broker."""


class ApacheKafka:
    """One combined broker and controller of Apache Kafka, formatted and started in `directory`."""

    ours = False

    def __init__(self, name, directory, overrides=None, jvm=None):
        """Formats the directory. `jvm` replaces the JVM options for a quick start."""
        self.name, self.release = name, APACHE[name]
        self.directory = Path(directory)
        self.log_dir = self.directory / "data"
        self.jvm = jvm
        data, control = free_ports(2)
        self.bootstrap, self.controller = f"127.0.0.1:{data}", f"127.0.0.1:{control}"
        if overrides and "listeners" in overrides:
            self.bootstrap, self.controller = (one.split("//")[1] for one in overrides["listeners"].split(","))
        self.directory.mkdir(parents=True, exist_ok=True)
        self.properties = self.directory / "server.properties"
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in self.settings(overrides or {}).items()))
        self.log = self.directory / "broker.log"
        self.java("kafka.tools.StorageTool", "format", "-t", "kafkacorePeerAAAAAAAAA", "-c", self.properties)
        self.start()

    def settings(self, overrides):
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{self.controller}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{self.controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.log_dir,
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "offsets.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            # `kafkacore dev` also sets these keys, because client test suites create and delete many topics.
            "log.segment.delete.delay.ms": "1000",
            **overrides,
        }

    def command(self, main, *arguments):
        return [*java(self.release, "512m", self.jvm), main, *arguments]

    def java(self, main, *arguments):
        command = [str(word) for word in self.command(main, *arguments)]
        subprocess.run(command, check=True, capture_output=True, timeout=APACHE_START_TIMEOUT_S)

    def command_line(self):
        # If pytest is killed, the kernel also kills the broker.
        return ["setpriv", "--pdeathsig", "KILL", "--", *self.command("kafka.Kafka", self.properties)]

    def start(self):
        self.child = Child(self.command_line(), self.log)
        self.pid = self.child.pid
        self.child.wait_ready(self.serves, APACHE_START_TIMEOUT_S, f"{self.name} ready")

    def serves(self):
        """Returns whether the broker appears in its own Metadata response. The broker opens its socket long before the
        controller unfences it."""
        from wire import brokers_in_metadata

        return accepts(self.bootstrap) and brokers_in_metadata(self.bootstrap)

    def kill(self):
        return self.child.kill()

    def stop(self):
        return self.child.terminate()


class InTurns(ApacheKafka):
    """A directory that Apache Kafka formats. Then Apache Kafka and our node run on it alternately."""

    child = None

    def start(self):
        """Does nothing, because each test starts one of the two brokers itself."""

    def give_to_apache(self):
        super().start()

    def give_to_us(self, *arguments):
        self.child = Child([ROOT / ".venv" / "bin" / "kafkacore", "start", self.properties, *arguments], self.log)
        self.child.wait_ready(self.serves, TURN_START_TIMEOUT_S, "kafkacore ready")


class Node:
    """Our node as a process: `kafkacore dev --json`. If `start()` is called after a stop, the node keeps its directory
    and port."""

    ours = True
    name = "kafkacore"

    def __init__(self, directory, *arguments, overrides=None, environment=None):
        self.log_dir = self.directory = Path(directory)
        self.arguments = [*arguments, *(f"--override={key}={value}" for key, value in (overrides or {}).items())]
        self.environment = {**os.environ, **(environment or {})}
        self.port = free_ports(1)[0]
        self.start()

    def command_line(self):
        return [
            ROOT / ".venv" / "bin" / "kafkacore", "dev", "--json", "--with-parent",
            "--dir", self.directory, "--port", self.port, *self.arguments,
        ]  # fmt: skip

    def start(self):
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        self.log = self.directory.with_name(self.directory.name + ".log")
        self.child = Child(self.command_line(), self.log, stdout=subprocess.PIPE, env=self.environment)
        line = self.first_line()
        if not line:
            self.child.kill()
            raise RuntimeError(f"kafkacore dev did not become ready\n{self.child.tail()}")
        self.ready = json.loads(line)
        self.bootstrap, self.controller, self.pid = (self.ready[key] for key in ("bootstrap", "controller", "pid"))
        self.metrics, self.log_dir = self.ready["metrics"], Path(self.ready["dir"])

    def first_line(self):
        """Returns the line in which the node reports that it is ready. Returns an empty string if the process ends or
        the time runs out."""
        stdout = self.child.process.stdout
        line, deadline = b"", time.monotonic() + OUR_START_TIMEOUT_S
        while not line.endswith(b"\n"):
            readable, _, _ = select.select([stdout], [], [], max(0, deadline - time.monotonic()))
            chunk = os.read(stdout.fileno(), 4096) if readable else b""
            if not chunk:
                return b""
            line += chunk
        return line

    def kill(self):
        return self.child.kill()

    def stop(self):
        return self.child.terminate()
