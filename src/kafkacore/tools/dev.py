"""`kafkacore dev`: runs a node on a free port without any configuration. Without `--dir`, removes the node's files at
the end.

With `--json`, prints one line with the node's addresses, for programs. If the directory in `--dir` already contains the
data of a node, that node continues.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
import time
from typing import Final

import orjson

from kafkacore._fast.base.uuid import Uuid
from kafkacore.config import BrokerConfig, ConfigError
from kafkacore.config.properties import parse_overrides
from kafkacore.protocol.errors import ErrorCode
from kafkacore.runtime.temporary_directory import TemporaryDirectory
from kafkacore.server.node import Node, NodeFailed
from kafkacore.server.registrar import RegistrationRefused
from kafkacore.storage import meta_properties
from kafkacore.storage.format import FormatError, FormatOptions, format_directories
from kafkacore.tools import running
from kafkacore.tools.start import log_to_stderr

LOG: Final = logging.getLogger(__name__)
DESCRIPTION: Final = "Runs a temporary node, broker and controller in one, without any configuration."
NODE_ID: Final = 1
HOST: Final = "127.0.0.1"
MAX_PORT: Final = 65535


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="NAME:PARTITIONS",
        help="create a topic unless it exists (NAME alone means one partition); repeatable",
    )
    parser.add_argument("--port", type=int, default=0, metavar="N", help="the port for clients (default: a free one)")
    parser.add_argument(
        "--dir", metavar="D", help="keep the node's files in this directory; continues a node whose files are there"
    )
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set a configuration key; repeatable",
    )
    parser.add_argument("--json", action="store_true", help="print the node's addresses as one line of JSON")
    parser.add_argument("--with-parent", action="store_true", help="stop when the process that started this one ends")


def run(arguments: argparse.Namespace) -> int:
    log_to_stderr()
    topics = [parse_topic(text) for text in arguments.topic]
    if not 0 <= arguments.port <= MAX_PORT:
        raise ConfigError("--port", arguments.port, f"must be from 0 to {MAX_PORT}; 0 chooses a free one")
    # The descriptor is opened before the start, so that the node also notices a parent that ends during the start.
    parent = os.pidfd_open(os.getppid()) if arguments.with_parent else -1
    with contextlib.ExitStack() as stack:
        directory = arguments.dir
        if directory is None:
            temporary = TemporaryDirectory("kafkacore-dev-")
            stack.callback(temporary.close)
            directory = temporary.logs
        config = configuration(os.path.abspath(directory), arguments.port, arguments.override)
        for name in parse_overrides(arguments.override):
            for note in config.note(name):
                LOG.warning("%s", note)
        prepare(config)

        def announce(node: Node) -> None:
            create_topics(node, topics)
            _announce(node, as_json=arguments.json)

        try:
            running.run(Node(config), announce, parent=parent)
        except (RegistrationRefused, NodeFailed, TimeoutError) as error:
            print(f"kafkacore: {error}", file=sys.stderr)
            return 1
    return 0


def parse_topic(text: str) -> tuple[str, int]:
    """Parses NAME:PARTITIONS, or a name alone for one partition. Raises ConfigError."""
    name, colon, count = text.rpartition(":")
    if not colon:
        name, count = text, "1"
    if not name or not (count.isascii() and count.isdigit()) or int(count) < 1:
        raise ConfigError("--topic", text, "must be NAME:PARTITIONS, for example orders:12")
    return name, int(count)


def configuration(directory: str, port: int, overrides: list[str]) -> BrokerConfig:
    """Returns the configuration of one node that is broker, controller and the only voter. Raises ConfigError."""
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"{HOST}:0",
        "log.dirs": directory,
        "offsets.topic.replication.factor": "1",
        # This is the value in Apache Kafka's own server.properties. With it, a new user's first group does not wait for
        # more members.
        "group.initial.rebalance.delay.ms": "0",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "metrics.port": "0",
    }
    return BrokerConfig(properties | parse_overrides(overrides))


def prepare(config: BrokerConfig) -> None:
    """Formats the unformatted directories. Raises LogDirectoryError, OSError and ConfigError."""
    known = meta_properties.read(config.metadata_log_dir)
    if known is not None and all(meta_properties.read(each) is not None for each in config.all_log_dirs):
        return
    cluster_id = str(Uuid.random()) if known is None or known.cluster_id is None else known.cluster_id
    options = FormatOptions(cluster_id, ignore_formatted=True, standalone=not config.controller_quorum_voters)
    try:
        format_directories(config, options, time.time_ns() // 1_000_000, say=lambda text: None)
    except FormatError as error:
        raise ConfigError("--dir", config.metadata_log_dir, str(error)) from None


def create_topics(node: Node, topics: list[tuple[str, int]]) -> None:
    """Creates those topics that do not exist yet. Raises ConfigError if the controller refuses a topic."""
    if not topics:
        return
    for name, error_code, message in node.create_topics(topics):
        if error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise ConfigError("--topic", name, message or ErrorCode(error_code).message)


def _announce(node: Node, *, as_json: bool) -> None:
    if as_json:
        place = {
            "bootstrap": node.bootstrap,
            "controller": node.controller,
            "metrics": node.metrics_address,
            "pid": os.getpid(),
            "dir": node.config.metadata_log_dir,
        }
        print(orjson.dumps(place).decode(), flush=True)
        return
    files = ", ".join(node.config.all_log_dirs)
    print(f"ready: clients connect to {node.bootstrap}")
    print(f"       controller {node.controller}, metrics {node.metrics_address}, files in {files}")
    print("       stop it with Ctrl-C", flush=True)
