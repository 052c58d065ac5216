"""Writes the output of the inspection commands: lines of text in the format of kafka-dump-log, or one JSON object on
each line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, BinaryIO, TextIO

import orjson


class Report:
    """Writes the content of files to `out`, and problems and remarks to `err`. As JSON, writes all of them to `out`."""

    def __init__(self, out: BinaryIO, err: TextIO, *, as_json: bool) -> None:
        self.as_json = as_json
        self.problems = 0
        self._out, self._err = out, err

    def write(self, lines: bytes) -> None:
        """Writes text or JSON that is already formatted, in whole or partial lines."""
        self._out.write(lines)

    def entry(self, kind: str, text: str, **fields: Any) -> None:
        """Writes one line: `text`, or the JSON object of `kind` and `fields`."""
        if self.as_json:
            text = compact({"kind": kind, **fields})
        self._out.write(f"{text}\n".encode("utf-8", "surrogateescape"))

    def remark(self, kind: str, text: str, **fields: Any) -> None:
        """Writes a line like `entry`, but for something unusual that is not a problem. Text goes to `err`."""
        if self.as_json:
            self.entry(kind, text, **fields)
        else:
            self.flush()
            self._err.write(f"{text}\n")

    def problem(self, path: str, problem: str, *, position: int | None = None, offset: int | None = None) -> None:
        """Reports a problem in a file, with its place: the byte in the file, or the offset in the log."""
        self.problems += 1
        where = "".join(
            f"{name} {value}: " for name, value in (("byte", position), ("offset", offset)) if value is not None
        )
        place: Mapping[str, int | None] = {"position": position, "offset": offset}
        self.remark("problem", f"{path}: {where}{problem}", file=path, **place, problem=problem)

    def flush(self) -> None:
        self._out.flush()


def compact(content: Any) -> str:
    """Returns JSON as Jackson writes it, without spaces and with unescaped characters.

    If the bytes of a path are not UTF-8, the path contains surrogates, which JSON can only represent escaped.
    """
    try:
        return orjson.dumps(content).decode()
    except orjson.JSONEncodeError:
        return json.dumps(content, separators=(",", ":"))
