"""`kafkacore COMMAND`: reads the command line and runs the module of the command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from kafkacore import __version__
from kafkacore.config import ConfigError
from kafkacore.storage.errors import LogDirectoryError, reason

# The module of a command has DESCRIPTION, add_arguments(parser) and run(arguments) -> exit code. Only the module of
# the given command is imported: the demo needs clients that a service does without.
COMMANDS: Final = {
    "start": "run a node with a server.properties",
    "dev": "run a temporary node without any configuration",
    "demo": "show the main job on real input, with real clients and a SIGKILL in the middle",
    "storage": "format log directories, or show what is in them",
    "dump-log": "print segments, indexes and snapshots, or verify them",
    "metadata-quorum": "describe the quorum of controllers, or change its voters",
    "features": "describe the features of a cluster, or change their levels",
    "cluster": "show a cluster's id and endpoints, or unregister a broker",
}
INTERRUPTED: Final = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code.

    An error that the user can correct is one line on stderr and exit code 1. Raises SystemExit as argparse does: with 0
    after --help and --version, with 2 for a command line that it refuses.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="kafkacore", description="An Apache Kafka node: broker and controller.")
    parser.add_argument("--version", action="version", version=f"kafkacore {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        if given[:1] == [name]:
            module = import_module(f"kafkacore.tools.{name.replace('-', '_')}")
            command.description = module.DESCRIPTION
            command.set_defaults(run=module.run)
            module.add_arguments(command)
    arguments = parser.parse_args(given)
    try:
        return int(arguments.run(arguments))
    except (ConfigError, LogDirectoryError, OSError) as error:
        print(f"kafkacore: {reason(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
