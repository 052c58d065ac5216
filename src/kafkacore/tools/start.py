"""`kafkacore start server.properties [--override key=value]`: runs a node until a signal stops it."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from typing import Final

from kafkacore.config import BrokerConfig, ConfigError
from kafkacore.server.node import Node, NodeFailed
from kafkacore.server.registrar import RegistrationRefused
from kafkacore.tools import running

DESCRIPTION: Final = "Runs a node with a server.properties, until SIGTERM."
LOG_LEVEL: Final = "KAFKACORE_LOG_LEVEL"
LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="FILE", help="the server.properties of the node")
    parser.add_argument(
        "--override", action="append", default=[], metavar="KEY=VALUE", help="takes precedence over FILE; repeatable"
    )


def run(arguments: argparse.Namespace) -> int:
    log_to_stderr()
    node = Node(BrokerConfig.load(arguments.config, arguments.override))
    try:
        running.run(node, _announce)
    except (RegistrationRefused, NodeFailed, TimeoutError) as error:
        print(f"kafkacore: {error}", file=sys.stderr)
        return 1
    return 0


def log_to_stderr() -> None:
    """Logs at the level that the environment sets. The default is WARNING. Raises ConfigError."""
    level = os.environ.get(LOG_LEVEL, "WARNING").upper()
    if level not in LEVELS:
        raise ConfigError(LOG_LEVEL, level, f"must be one of {', '.join(LEVELS)}")
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def _announce(node: Node) -> None:
    addresses = [f"{name} {address}" for name, address in node.addresses.items()]
    if node.metrics_address is not None:
        addresses.append(f"metrics {node.metrics_address}")
    print(f"ready: node {node.config.node_id}, {', '.join(addresses)}", flush=True)
