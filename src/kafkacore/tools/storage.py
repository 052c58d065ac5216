"""`kafkacore storage format | info | random-uuid`, as Apache Kafka's kafka-storage.sh (KIP-631, KIP-853)."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Final

from kafkacore._fast.base.uuid import Uuid
from kafkacore.config import BrokerConfig
from kafkacore.inspection.codecs import describe_codecs
from kafkacore.inspection.directories import describe_directories
from kafkacore.storage.format import FormatError, FormatOptions, format_directories

DESCRIPTION: Final = "Formats the log directories of a node, or shows to which cluster and node they belong."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="storage_command", required=True, metavar="COMMAND")
    info = commands.add_parser(
        "info",
        help="show the cluster and node of the log directories, and their problems (dump-log --verify checks their "
        "logs)",
        description="Shows to which cluster and node the log directories belong, and their problems. The exit code "
        "is 1 if there is a problem. `kafkacore dump-log --verify` checks the logs themselves.",
    )
    _add_config(info)
    formatting = commands.add_parser(
        "format",
        help="format the log directories",
        description="Formats the log directories of a node, before its first start. `kafkacore storage random-uuid` "
        "makes an ID; --standalone makes the node a cluster by itself.",
    )
    _add_config(formatting)
    _add_format_arguments(formatting)
    commands.add_parser("random-uuid", help="print a random UUID, for example for a cluster id")


def run(arguments: argparse.Namespace) -> int:
    match arguments.storage_command:
        case "info":
            return _info(arguments)
        case "format":
            return _format(arguments)
    print(Uuid.random())
    return 0


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", "-c", required=True, metavar="FILE", help="the server.properties of the node")
    parser.add_argument(
        "--override", action="append", default=[], metavar="KEY=VALUE", help="takes precedence over FILE; repeatable"
    )


def _add_format_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cluster-id", "-t", required=True, metavar="ID", help="the ID of the cluster, the same on all its nodes"
    )
    parser.add_argument(
        "--ignore-formatted", "-g", action="store_true", help="skip directories that are already formatted"
    )
    parser.add_argument(
        "--release-version", "-r", metavar="VERSION", help="the initial metadata.version, 3.9 to 4.3 (default: 4.3)"
    )
    parser.add_argument(
        "--feature",
        "-f",
        action="append",
        default=[],
        metavar="NAME=LEVEL",
        help="the initial level of a feature; repeatable",
    )
    parser.add_argument(
        "--add-scram",
        "-S",
        action="append",
        default=[],
        metavar="CREDENTIAL",
        help="an initial user: 'SCRAM-SHA-256=[name=alice,password=alice-secret]', or "
        '\'SCRAM-SHA-512=[name=alice,iterations=8192,salt="N3E=",saltedpassword="YCE="]\'',
    )
    voters = parser.add_mutually_exclusive_group()
    voters.add_argument("--standalone", "-s", action="store_true", help="this controller is the only voter")
    voters.add_argument(
        "--no-initial-controllers", "-N", action="store_true", help="the quorum is formatted elsewhere or later"
    )
    voters.add_argument(
        "--initial-controllers",
        "-I",
        metavar="VOTERS",
        help="the voters: ID@HOST:PORT:DIRECTORY-ID entries separated by commas, the same on all nodes",
    )


def _info(arguments: argparse.Namespace) -> int:
    sound = describe_directories(BrokerConfig.load(arguments.config, arguments.override))
    print("Found codecs:")
    for line in describe_codecs():
        print(f"  {line}")
    return 0 if sound else 1


def _format(arguments: argparse.Namespace) -> int:
    try:
        options = FormatOptions(
            cluster_id=arguments.cluster_id,
            ignore_formatted=arguments.ignore_formatted,
            release_version=arguments.release_version,
            features=_features(arguments.feature),
            standalone=arguments.standalone,
            no_initial_controllers=arguments.no_initial_controllers,
            initial_controllers=arguments.initial_controllers,
            add_scram=tuple(arguments.add_scram),
        )
        format_directories(
            BrokerConfig.load(arguments.config, arguments.override), options, time.time_ns() // 1_000_000
        )
    except FormatError as error:
        print(f"kafkacore: {error}", file=sys.stderr)
        return 1
    return 0


def _features(texts: list[str]) -> dict[str, int]:
    """Parses the levels by feature. Raises FormatError for a text that is not NAME=LEVEL."""
    levels: dict[str, int] = {}
    for text in texts:
        name, equals, level = text.partition("=")
        if not equals or not (level.isascii() and level.isdigit()):
            raise FormatError(f"--feature {text!r} must be NAME=LEVEL, for example kraft.version=1")
        levels[name.strip()] = int(level)
    return levels
