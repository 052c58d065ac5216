"""`kafkacore COMMAND`: parses the command line and runs the module of the command."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Final

from kafkacore import __version__
from kafkacore.config import ConfigError
from kafkacore.storage.errors import LogDirectoryError, reason

# The module of a command has DESCRIPTION, add_arguments(parser) and run(arguments) -> exit code. Only the module of the
# given command is imported, because the demo needs clients that a service may not have installed.
COMMANDS: Final = {
    "start": "run a node with a server.properties",
    "dev": "run a temporary node without any configuration",
    "demo": "show a node and a cluster with real clients, before and after SIGKILL",
    "storage": "format log directories, or show what is in them",
    "dump-log": "print segments, indexes and snapshots, or verify them",
    "metadata-quorum": "describe the quorum of controllers, or change its voters",
    "metadata-shell": "show the metadata of a cluster, live or from files, also at an earlier offset",
    "features": "describe the features of a cluster, or change their levels",
    "simulate": "run clusters in a simulated world from a seed, and check them",
    "reassign-partitions": "move partitions between brokers",
    "leader-election": "elect preferred leaders, or hold unclean elections",
    "replica-verification": "compare the replicas of partitions, on a live cluster or in directories",
    "spark": "analyse a cluster's files with Spark",
    "cluster": "show a cluster's id and endpoints, or unregister a broker",
}
INTERRUPTED: Final = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code.

    For an error that the user can correct, prints one line on stderr and returns 1. After Ctrl-C, returns 130. Like
    argparse, raises SystemExit with 0 after --help and --version, and with 2 for an invalid command line.
    """
    try:
        arguments = _parsed(list(sys.argv[1:] if argv is None else argv), own_process=argv is None)
        code = int(arguments.run(arguments))
        _flush()
    except BrokenPipeError:  # the reader has closed the pipe, as `| head` does
        pass
    except (ConfigError, LogDirectoryError, OSError) as error:
        print(f"kafkacore: {reason(error)}", file=sys.stderr)
    except KeyboardInterrupt:
        return INTERRUPTED
    else:
        return code
    _end_output()
    return 1


def _end_output() -> None:
    """Writes the rest of the output. If this fails, discards the output, because Python would try again at its exit and
    show the error."""
    try:
        _flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _flush() -> None:
    if sys.stdout is not None:  # it is None if the caller has closed the descriptor
        sys.stdout.flush()


def _parsed(given: list[str], *, own_process: bool) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="kafkacore", description="An Apache Kafka node: broker and controller.")
    parser.add_argument("--version", action="version", version=f"kafkacore {__version__}")
    # With `prog`, argparse does not format a usage line to find the name of a command, and so needs no further imports.
    commands = parser.add_subparsers(required=True, metavar="COMMAND", prog="kafkacore")
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        if given[:1] == [name]:
            module = _import(f"kafkacore.tools.{name.replace('-', '_')}", own_process=own_process)
            command.description = module.DESCRIPTION
            command.set_defaults(run=module.run)
            module.add_arguments(command)
    return parser.parse_args(given)


def _import(name: str, *, own_process: bool) -> ModuleType:
    """Imports a command's module. If no other code runs in the process, switches the garbage collector off during the
    import, and makes it ignore the modules later. Modules live as long as the process, and scanning them would take a
    tenth of the time of a start."""
    if not own_process:
        return import_module(name)
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        gc.enable()


if __name__ == "__main__":
    sys.exit(main())
