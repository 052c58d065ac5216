"""`kafkacore COMMAND`: finds the command's module, which is imported only when it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import argparse
    from types import ModuleType

# A command's module has DESCRIPTION, add_arguments(parser) and run(arguments) -> exit code. One that is to begin at
# once also has read_plain(words): its arguments where they are given plainly, else None.
COMMANDS: Final = {
    "start": "runs a node by a server.properties",
    "dev": "runs a temporary node, without any configuration",
    "demo": "shows the main job on real input, with real clients and a SIGKILL in the middle",
    "storage": "formats log directories, and tells what they belong to",
    "dump-log": "shows what is in segments, indexes and snapshots, and verifies them",
}
STARTS_A_NODE: Final = frozenset({"start", "dev"})
USAGE_ERROR: Final = 2
INTERRUPTED: Final = 130
HELP_WIDTH: Final = 80


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 1 with a line on stderr for what the user can put right."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:1] == ["--version"]:
        from kafkacore import __version__

        print(f"kafkacore {__version__}")
        return 0
    if not given or given[0] not in COMMANDS:
        asked_for_help = given[:1] in (["-h"], ["--help"])
        print(
            _usage(given[0] if given and not asked_for_help else None),
            file=sys.stdout if asked_for_help else sys.stderr,
        )
        return 0 if asked_for_help else USAGE_ERROR
    if given[0] not in STARTS_A_NODE:
        return _command(given)
    import gc

    # What a start makes stays: looking for garbage in it is a part in fifteen of its time. `running` enables it again.
    gc.disable()
    from kafkacore.tools import ahead

    libraries = ahead.open_libraries()
    try:
        return _command(given)
    finally:
        libraries.wait()


def _command(given: list[str]) -> int:
    module = import_module(f"kafkacore.tools.{given[0].replace('-', '_')}")
    read_plain = getattr(module, "read_plain", None)
    arguments = None if read_plain is None else read_plain(given[1:])
    return _run(module, _parsed(module, given) if arguments is None else arguments)


def _parsed(module: ModuleType, given: list[str]) -> argparse.Namespace:
    import argparse

    parser = argparse.ArgumentParser(
        prog=f"kafkacore {given[0]}",
        description=module.DESCRIPTION,
        # A given width: to ask for the terminal's, argparse loads shutil and every compression that it knows.
        formatter_class=lambda prog: argparse.HelpFormatter(prog, width=HELP_WIDTH),
    )
    module.add_arguments(parser)
    return parser.parse_args(given[1:])


def _run(module: ModuleType, arguments: object) -> int:
    try:
        return int(module.run(arguments))
    except _told_in_a_line() as error:
        from kafkacore.storage.errors import reason

        print(f"kafkacore: {reason(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def _told_in_a_line() -> tuple[type[Exception], ...]:
    """What a user can put right. Asked only once something went wrong: not every command needs the configuration."""
    from kafkacore.config import ConfigError
    from kafkacore.storage.errors import LogDirectoryError

    return ConfigError, LogDirectoryError, OSError


def _usage(unknown: str | None) -> str:
    lines = [f"kafkacore: there is no command {unknown!r}"] if unknown else []
    lines += ["usage: kafkacore COMMAND ...", "", "commands:"]
    lines += [f"  {name:<10}{what}" for name, what in COMMANDS.items()]
    lines += ["", "`kafkacore COMMAND --help` tells more, `kafkacore --version` the version."]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
