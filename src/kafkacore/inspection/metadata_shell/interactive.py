"""The shell at a terminal, with a prompt, history and completion by readline. Without a terminal, it reads one command
from each line."""

from __future__ import annotations

import shlex
import shutil
import sys
from typing import Final, TextIO

from kafkacore.inspection.metadata_shell.commands import COMMANDS, Session, run
from kafkacore.inspection.metadata_shell.nodes import Directory
from kafkacore.inspection.metadata_shell.paths import ROOT, absolute, matches

PROMPT: Final = ">> "
_BANNER: Final = "[ kafkacore metadata shell ]"


def converse(session: Session, lines: TextIO) -> None:
    """Runs commands until `exit` or the end of `lines`."""
    if lines is sys.stdin and lines.isatty():
        _at_terminal(session)
        return
    for line in lines:
        _run(session, line)
        if session.ended:
            return


def _at_terminal(session: Session) -> None:
    import readline  # noqa: PLC0415 - takes over the terminal

    found: list[str] = []

    def complete(word: str, number: int) -> str | None:
        """Returns one completion. readline calls this with the numbers 0, 1, 2 and so on, until it returns None."""
        if number == 0:
            found[:] = completions(session, readline.get_line_buffer()[: readline.get_endidx()], word)
        return found[number] if number < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" ")
    readline.parse_and_bind("tab: complete")
    session.width = lambda: shutil.get_terminal_size().columns
    print(_BANNER)
    while not session.ended:
        try:
            line = input(PROMPT)
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print("^C")
            continue
        _run(session, line)


def _run(session: Session, line: str) -> None:
    line = line.strip()
    if not line:
        return
    session.lines.append(line)
    words = shlex.shlex(line, posix=True)
    words.whitespace_split, words.escape, words.commenters = True, "", ""  # a backslash is part of a path
    try:
        run(session, list(words), interactive=True)
    except ValueError as error:  # a quotation mark has no counterpart
        session.failures += 1
        session.report.entry("problem", f"{line}: {error}", problem=str(error))
    session.report.flush()


def completions(session: Session, line: str, word: str) -> list[str]:
    """Returns the words to which `word`, the last word of a line, can be completed. They are commands or paths. A
    directory ends with a slash."""
    before = line[: len(line) - len(word)].split()
    if not before or before[0] == "man":
        return [name for name in COMMANDS if name.startswith(word)]
    head, slash, last = word.rpartition(ROOT)
    parts = absolute(head + slash, session.working)
    node = next((node for _, node in matches(session.root(), parts)), None)
    if not isinstance(node, Directory):
        return []
    return [
        head + slash + name + (ROOT if isinstance(node.child(name), Directory) else "")
        for name in node.names()
        if name.startswith(last)
    ]
