"""`kafkacore start server.properties [--override key=value]`: runs a node until it is told to stop."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkacore.config import BrokerConfig, ConfigError
from kafkacore.tools import plain

if TYPE_CHECKING:
    import argparse

    from kafkacore.server.node import Node

DESCRIPTION: Final = "Runs a node by a server.properties, until SIGTERM."
LOG_LEVEL: Final = "KAFKACORE_LOG_LEVEL"
LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class Arguments(NamedTuple):
    """What `add_arguments` asks for."""

    config: str
    override: list[str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="FILE", help="the server.properties of the node")
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE", help="goes before FILE's value")


def read_plain(words: Sequence[str]) -> Arguments | None:
    """FILE and overrides in full, as every service's definition has them; None: not so."""
    given = plain.read(words, ("--override",))
    if given is None or len(given.files) != 1:
        return None
    return Arguments(given.files[0], given.values["--override"])


def run(arguments: Arguments) -> int:
    from kafkacore.server.node import Node, NodeFailed
    from kafkacore.server.registrar import RegistrationRefused
    from kafkacore.tools import running

    log_to_stderr()
    node = Node(BrokerConfig.load(arguments.config, arguments.override))
    try:
        running.run(node, _announce)
    except (RegistrationRefused, NodeFailed, TimeoutError) as error:
        print(f"kafkacore: {error}", file=sys.stderr)
        return 1
    return 0


def log_to_stderr() -> None:
    """At the level that the environment names; warnings and errors by default. Raises ConfigError."""
    level = os.environ.get(LOG_LEVEL, "WARNING").upper()
    if level not in LEVELS:
        raise ConfigError(LOG_LEVEL, level, f"must be one of {', '.join(LEVELS)}")
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def _announce(node: Node) -> None:
    where = [f"{name} {address}" for name, address in node.addresses.items()]
    if node.metrics_address is not None:
        where.append(f"metrics {node.metrics_address}")
    print(f"ready: node {node.config.node_id}, {', '.join(where)}", flush=True)
