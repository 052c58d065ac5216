"""The commands of the metadata shell: cat, cd, exit, find, help, history, ls, man, pwd, tree.

Their output is the same as in Apache Kafka's metadata shell. With JSON output, each line is an object: a path alone, a
path with its children, or a path with its content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from kafkacore.inspection.metadata_shell.nodes import Directory, Leaf, Node
from kafkacore.inspection.metadata_shell.paths import ROOT, absolute, is_pattern, joined, matches
from kafkacore.inspection.report import Report

INDENT: Final = "  "
_MIN_COLUMN: Final = 4  # the width of the narrowest column of `ls`, in characters
_GAP: Final = 2  # the number of characters between two columns


class Session:
    """One user's position in the tree. `root` returns the current tree. `width` returns the width of the terminal in
    characters. If `width` is None, `ls` prints one name on each line."""

    def __init__(self, root: Callable[[], Directory], report: Report, width: Callable[[], int] | None = None) -> None:
        self.root, self.report, self.width = root, report, width
        self.working: list[str] = []
        self.lines: list[str] = []
        self.failures = 0
        self.ended = False

    def found(self, target: str) -> Iterator[tuple[tuple[str, ...], Node]]:
        return matches(self.root(), absolute(target, self.working))

    def refuse(self, command: str, target: str, why: str) -> None:
        self.failures += 1
        self.report.entry("problem", f"{command}: {target}: {why}", command=command, target=target, problem=why)


class Command(NamedTuple):
    """A command of the shell. `operands` is the least and the greatest number of its operands. None means no limit."""

    name: str
    summary: str
    operand: str
    operands: tuple[int, int | None]
    run: Callable[[Session, Sequence[str]], None]
    interactive_only: bool = False

    @property
    def usage(self) -> str:
        least, most = self.operands
        each = f"{self.operand} ..." if most is None else self.operand
        return f"{self.name} {each if least else f'[{each}]'}" if self.operand else self.name


# --- display ---------------------------------------------------------------------------------------------------------


def _cat(session: Session, targets: Sequence[str]) -> None:
    for target in targets:
        nothing = True
        for path, node in session.found(target):
            nothing = False
            if isinstance(node, Directory):
                session.refuse("cat", target, "Is a directory")
            else:
                session.report.entry("file", node.text, path=joined(path), value=node.value)
        if nothing:
            session.refuse("cat", target, "No such file or directory.")


def _find(session: Session, targets: Sequence[str]) -> None:
    for target in targets or ["."]:
        nothing = True
        for path, node in session.found(target):
            nothing = False
            _show_below(session, joined(path) if is_pattern(target) else target, path, node)
        if nothing:
            session.refuse("find", target, "no such file or directory.")


def _show_below(session: Session, shown: str, path: tuple[str, ...], node: Node) -> None:
    session.report.entry("node", shown, path=joined(path), directory=isinstance(node, Directory))
    for name, child in _children(node):
        _show_below(session, shown + name if shown == ROOT else f"{shown}/{name}", (*path, name), child)


def _tree(session: Session, targets: Sequence[str]) -> None:
    for target in targets:
        nothing = True
        for path, node in session.found(target):
            nothing = False
            _show_tree(session, path, node, 0)
        if nothing:
            session.refuse("tree", target, "No such file or directory.")


def _show_tree(session: Session, path: tuple[str, ...], node: Node, depth: int) -> None:
    report = session.report
    if isinstance(node, Leaf):
        report.entry("file", INDENT * depth + node.text, path=joined(path), value=node.value)
    for name, child in _children(node):
        if not report.as_json:
            report.entry("node", f"{INDENT * depth}{name}:")
        _show_tree(session, (*path, name), child, depth + 1)


def _children(node: Node) -> Iterator[tuple[str, Node]]:
    if isinstance(node, Directory):
        for name in node.names():
            child = node.child(name)
            if child is not None:
                yield name, child


def _ls(session: Session, targets: Sequence[str]) -> None:
    files: list[tuple[str, ...]] = []
    directories: list[tuple[tuple[str, ...], list[str]]] = []
    for target in targets or ["."]:
        nothing = True
        for path, node in session.found(target):
            nothing = False
            if isinstance(node, Directory):
                directories.append((path, node.names()))
            else:
                files.append(path)
        if nothing:
            session.refuse("ls", target, "no such file or directory.")
    if session.report.as_json:
        for path in files:
            session.report.entry("file", "", path=joined(path))
        for path, names in directories:
            session.report.entry("directory", "", path=joined(path), children=names)
        return
    _show_names(session, [_last(path) for path in files])
    titled = bool(files) or len(directories) > 1
    for number, (path, names) in enumerate(directories):
        if titled and names:
            session.report.entry("node", ("\n" if files or number else "") + f"{_last(path)}:")
        _show_names(session, names)


def _last(path: tuple[str, ...]) -> str:
    return path[-1] if path else ROOT


def _show_names(session: Session, names: list[str]) -> None:
    for line in in_columns(names, None if session.width is None else session.width()):
        session.report.entry("node", line)


def in_columns(names: list[str], width: int | None) -> Iterator[str]:
    """Yields lines with as many columns as fit into `width` characters. The names are sorted from top to bottom in each
    column."""
    most = 1 if width is None else max(width // _MIN_COLUMN, 1)
    for columns in range(min(most, len(names)), 0, -1):
        height = -(-len(names) // columns)
        parts = [names[at : at + height] for at in range(0, len(names), height)]
        widths = [max(map(len, part)) + _GAP for part in parts]
        if len(parts) == 1 or width is None or sum(widths) <= width:
            for line in range(height):
                row = [part[line] for part in parts if line < len(part)]
                yield "".join([name.ljust(size) for name, size in zip(row[:-1], widths, strict=False)]) + row[-1]
            return


# --- the user's position ---------------------------------------------------------------------------------------------


def _cd(session: Session, targets: Sequence[str]) -> None:
    target = targets[0] if targets else ROOT
    first = next(session.found(target), None)
    if first is None:
        session.refuse("cd", target, "no such directory.")
    elif not isinstance(first[1], Directory):
        session.refuse("cd", target, "not a directory.")
    else:
        session.working = list(first[0])


def _pwd(session: Session, _: Sequence[str]) -> None:
    session.report.entry("directory", joined(session.working), path=joined(session.working))


def _history(session: Session, operands: Sequence[str]) -> None:
    count = len(session.lines)
    if operands:
        if not (operands[0].isascii() and operands[0].isdigit()):
            session.refuse("history", operands[0], "is not a number of entries")
            return
        count = min(int(operands[0]), count)
    first = len(session.lines) - count
    for number, line in enumerate(session.lines[first:], first):
        session.report.entry("history", f"{number:5d}  {line}", number=number, line=line)


def _exit(session: Session, _: Sequence[str]) -> None:
    session.ended = True


# --- help ------------------------------------------------------------------------------------------------------------


def _man(session: Session, operands: Sequence[str]) -> None:
    command = COMMANDS.get(operands[0])
    if command is None:
        session.refuse("man", operands[0], "unknown command; type 'help' for a list of commands")
        return
    text = f"{command.name}: {command.summary}\n\nusage: {command.usage}"
    session.report.entry("help", text, command=command.name, summary=command.summary, usage=command.usage)


def _help(session: Session, _: Sequence[str]) -> None:
    if not session.report.as_json:
        session.report.entry("help", "Welcome to the kafkacore metadata shell.\n")
    for command in COMMANDS.values():
        text = f"{command.usage:<24}{command.summary}"
        session.report.entry("help", text, command=command.name, summary=command.summary, usage=command.usage)


COMMANDS: Final = {
    command.name: command
    for command in (
        Command("cat", "Show the contents of metadata files.", "PATH", (1, None), _cat),
        Command("cd", "Set the current working directory.", "PATH", (0, 1), _cd, True),
        Command("exit", "Exit the metadata shell.", "", (0, 0), _exit, True),
        Command("find", "Search for nodes in the directory hierarchy.", "PATH", (0, None), _find),
        Command("help", "Display this help message.", "", (0, 0), _help),
        Command("history", "Print command history.", "COUNT", (0, 1), _history, True),
        Command("ls", "List metadata nodes.", "PATH", (0, None), _ls),
        Command("man", "Show the help text for a specific command.", "COMMAND", (1, 1), _man),
        Command("pwd", "Print the current working directory.", "", (0, 0), _pwd, True),
        Command("tree", "Show the contents of metadata nodes in a tree structure.", "PATH", (1, None), _tree),
    )
}


def run(session: Session, words: Sequence[str], *, interactive: bool) -> None:
    """Runs one command. If the command fails, prints a line with the reason and marks the session as failed."""
    if not words:
        return
    name, operands = words[0], words[1:]
    allowed = [each.name for each in COMMANDS.values() if interactive or not each.interactive_only]
    if name not in allowed:
        _wrong(session, f"invalid choice: '{name}' (choose from {', '.join(map(repr, allowed))})")
        return
    command = COMMANDS[name]
    least, most = command.operands
    if len(operands) < least:
        _wrong(session, "too few arguments")
    elif most is not None and len(operands) > most:
        _wrong(session, f"unrecognized arguments: '{' '.join(operands[most:])}'")
    else:
        command.run(session, operands)


def _wrong(session: Session, why: str) -> None:
    session.failures += 1
    session.report.entry("problem", why, problem=why)
