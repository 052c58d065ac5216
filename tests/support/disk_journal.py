"""Reads the journal of a process's file operations, which disk_journal.c writes, and computes the files that a power
cut at any moment would leave.

A finished sync makes the earlier content of a file durable. The disk may keep or lose each later write or truncation,
or tear it into sectors, independently of the others. A name is durable once the process has synced its directory. A
directory keeps the later changes of names up to some moment, and that moment differs from directory to directory.
"""

from __future__ import annotations

import os
import random
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_suffix(".c")
HEAD = struct.Struct("<IIIIQqq")
SECTOR_BYTES = 512
(ROOT, CREATE, MKDIR, WRITE, TRUNCATE, RENAME, UNLINK, RMDIR, SYNC_BEGIN, SYNC_END, SYNC_FAILED, UNKNOWN) = range(1, 13)


def build(into: Path) -> Path:
    """Builds the library that tests preload. Raises CalledProcessError with the compiler's output."""
    library = into / "disk_journal.so"
    command = [
        "gcc",
        "-shared",
        "-fPIC",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-o",
        library,
        SOURCE,
        "-ldl",
        "-pthread",
    ]
    # Tests may run with a preloaded sanitizer runtime, but the compiler must not.
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run(command, check=True, capture_output=True, text=True, env=plain)
    return library


def environment(library: Path, journal: Path, root: Path, fail: int = -1) -> dict[str, str]:
    """Returns the environment variables for the recorded process. `root` must exist. `fail` is the number, counted from
    0, of the sync that the library lets fail."""
    preload = " ".join(filter(None, (os.environ.get("LD_PRELOAD"), str(library))))
    watched = {"LD_PRELOAD": preload, "KAFKACORE_JOURNAL": str(journal), "KAFKACORE_JOURNAL_ROOT": str(root)}
    return watched if fail < 0 else watched | {"KAFKACORE_JOURNAL_FAIL": str(fail)}


def kill(process: subprocess.Popen[bytes], journal: Path, timeout_s: float = 20.0) -> None:
    """Sends SIGKILL at the next file operation of the process. Raises TimeoutExpired if no such operation comes in
    time."""
    order = journal.with_name(f"{journal.name}.kill")
    order.touch()
    process.wait(timeout_s)
    order.unlink()


class Operation(NamedTuple):
    """A file operation. `end` is the size of the journal including this operation. Tests use that size as a clock."""

    kind: int
    path: str
    other: str
    data: bytes
    inode: int
    offset: int
    process: int
    end: int


def read(journal: Path) -> list[Operation]:
    """Returns the operations of a journal. Ignores an incomplete operation at the end, which SIGKILL can leave."""
    raw = journal.read_bytes()
    at, operations = 0, []
    while at + HEAD.size <= len(raw):
        kind, path_bytes, other_bytes, data_bytes, inode, offset, process = HEAD.unpack_from(raw, at)
        at += HEAD.size
        if at + path_bytes + other_bytes + data_bytes > len(raw):
            break
        path = raw[at : at + path_bytes].decode()
        at += path_bytes
        other = raw[at : at + other_bytes].decode()
        at += other_bytes
        data = raw[at : at + data_bytes]
        at += data_bytes
        operations.append(Operation(kind, path, other, data, inode, offset, process, at))
    return operations


class Change(NamedTuple):
    """A change of a file's content by operation `number`: writes `data` at `offset`, or truncates the file to `offset`
    if `data` is None."""

    number: int
    offset: int
    data: bytes | None


class Node:
    """A file, or a directory with its entries. A node has a visible state and a durable state."""

    def __init__(self, *, directory: bool) -> None:
        self.directory = directory
        self.now, self.durable = bytearray(), bytearray()
        self.names: dict[str, Node] = {}
        self.durable_names: dict[str, Node] = {}
        self.changes: list[Change] = []
        self.name_changes: list[tuple[int, dict[str, Node | None]]] = []

    def change(self, number: int, offset: int, data: bytes | None) -> None:
        self.changes.append(Change(number, offset, data))
        apply_change(self.now, offset, data)

    def rename(self, number: int, names: dict[str, Node | None]) -> None:
        """Changes several names in one step. Afterwards each name refers to the given node, or to nothing if the node
        is None."""
        self.name_changes.append((number, names))
        apply_names(self.names, names)

    def sync(self, before: int) -> None:
        """Makes every change by an operation before number `before` durable."""
        while self.changes and self.changes[0].number < before:
            _, offset, data = self.changes.pop(0)
            apply_change(self.durable, offset, data)
        while self.name_changes and self.name_changes[0][0] < before:
            apply_names(self.durable_names, self.name_changes.pop(0)[1])

    def forget(self, before: int) -> None:
        """After a failed sync, drops the changes by operations before number `before`: the kernel has marked the pages
        clean, so no later sync writes them."""
        self.changes = [change for change in self.changes if change.number >= before]


def apply_change(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        data = b""
    if len(content) < offset:
        content += bytes(offset - len(content))
    content[offset : offset + len(data)] = data


def apply_names(names: dict[str, Node], change: dict[str, Node | None]) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class Disk:
    """The files below a root, after the operations applied so far."""

    def __init__(self) -> None:
        self.root = Node(directory=True)
        self.path = ""
        self.by_inode: dict[int, Node] = {}
        self.syncs: dict[tuple[int, int], int] = {}
        self.number = 0

    def apply(self, one: Operation) -> None:
        self.number += 1
        if one.kind == ROOT:
            self.path = one.path
            self.by_inode[one.inode] = self.root
        elif one.kind in (CREATE, MKDIR):
            parent, name = self._place(one.path)
            made = self.by_inode[one.inode] = Node(directory=one.kind == MKDIR)
            parent.rename(self.number, {name: made})
        elif one.kind == RENAME:
            self._rename(one)
        elif one.kind in (UNLINK, RMDIR):
            parent, name = self._place(one.path)
            parent.rename(self.number, {name: None})
        elif one.kind in (WRITE, TRUNCATE):
            self.by_inode[one.inode].change(self.number, one.offset, one.data if one.kind == WRITE else None)
        elif one.kind == SYNC_BEGIN:
            self.syncs[one.process, one.offset] = self.number
        elif one.kind in (SYNC_END, SYNC_FAILED):
            began = self.syncs.pop((one.process, one.offset))
            node = self.by_inode[one.inode]
            node.sync(began) if one.kind == SYNC_END else node.forget(began)
        else:
            raise ValueError(f"{one.path} left the recorded directory")

    def _place(self, path: str) -> tuple[Node, str]:
        directory, name = os.path.split(os.path.relpath(path, self.path))
        node = self.root
        for part in Path(directory).parts:
            node = node.names[part]
        return node, name

    def _rename(self, one: Operation) -> None:
        parent, name = self._place(one.path)
        other, new_name = self._place(one.other)
        if other is not parent:
            raise ValueError(f"{one.path} -> {one.other}: a rename across directories needs two syncs")
        parent.rename(self.number, {name: None, new_name: parent.names[name]})

    def files(self) -> dict[str, bytes]:
        """Returns the content of the files that remain when the process is killed, by path below the root. A kill loses
        no file."""
        return {path: bytes(node.now) for path, node in walk(self.root) if not node.directory}


def walk(node: Node, path: str = "") -> Iterator[tuple[str, Node]]:
    for name, below in node.names.items():
        yield f"{path}{name}", below
        yield from walk(below, f"{path}{name}/")


class Cut:
    """A power cut. Its seed decides how many of the unsynced changes the disk keeps."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        # The disk keeps none, all or some of the changes. Names and contents are decided separately, because file
        # systems order them differently.
        self.names, self.contents = self._random.choices(("none", "all", "some"), (1, 1, 2), k=2)

    def leave(self, disk: Disk, into: Path) -> None:
        """Makes the directory `into` with the files that remain."""
        into.mkdir()
        self._leave(disk.root, into)

    def _leave(self, node: Node, into: Path) -> None:
        for name, below in self._names(node).items():
            if below.directory:
                (into / name).mkdir()
                self._leave(below, into / name)
            else:
                (into / name).write_bytes(self._content(below))

    def _names(self, node: Node) -> dict[str, Node]:
        count = len(node.name_changes)
        kept = {"none": 0, "all": count, "some": self._random.randint(0, count)}[self.names]
        names = dict(node.durable_names)
        for _, change in node.name_changes[:kept]:
            apply_names(names, change)
        return names

    def _content(self, node: Node) -> bytes:
        content = bytearray(node.durable)
        for _, offset, data in node.changes:
            fate = self.contents if self.contents != "some" else self._random.choice(("none", "all", "torn", "torn"))
            if fate == "all" or (fate == "torn" and data is None and self._random.random() < 0.5):
                apply_change(content, offset, data)
            elif fate == "torn" and data is not None:
                self._tear(content, offset, data)
        return bytes(content)

    def _tear(self, content: bytearray, offset: int, data: bytes) -> None:
        at = 0
        while at < len(data):
            size = min(SECTOR_BYTES - (offset + at) % SECTOR_BYTES, len(data) - at)
            if self._random.random() < 0.5:
                apply_change(content, offset + at, data[at : at + size])
            at += size
