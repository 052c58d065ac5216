"""Writes the output: lines of text as kafka-dump-log writes them, or one JSON object on each line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, BinaryIO, TextIO

import orjson


class Report:
    """The content of files goes to `out`, problems and remarks to `err`; as JSON both go to `out`."""

    def __init__(self, out: BinaryIO, err: TextIO, *, as_json: bool) -> None:
        self.as_json = as_json
        self.problems = 0
        self._out, self._err = out, err

    def write(self, lines: bytes) -> None:
        """Writes text or JSON that is complete already, in whole or partial lines."""
        self._out.write(lines)

    def entry(self, kind: str, text: str, **fields: Any) -> None:
        """Writes one line: `text`, or the JSON object of `kind` and `fields`."""
        if self.as_json:
            text = compact({"kind": kind, **fields})
        self._out.write(f"{text}\n".encode("utf-8", "surrogateescape"))

    def remark(self, kind: str, text: str, **fields: Any) -> None:
        """As `entry`, for something unusual that is not a problem: text goes to `err`."""
        if self.as_json:
            self.entry(kind, text, **fields)
        else:
            self.flush()
            self._err.write(f"{text}\n")

    def problem(self, path: str, problem: str, *, position: int | None = None, offset: int | None = None) -> None:
        """Reports a problem of a file and its place: the byte in the file, the offset in the log."""
        self.problems += 1
        where = "".join(
            f"{name} {value}: " for name, value in (("byte", position), ("offset", offset)) if value is not None
        )
        place: Mapping[str, int | None] = {"position": position, "offset": offset}
        self.remark("problem", f"{path}: {where}{problem}", file=path, **place, problem=problem)

    def flush(self) -> None:
        self._out.flush()


def compact(content: Any) -> str:
    """JSON as Jackson writes it: no spaces, and characters unescaped.

    A path whose bytes are not UTF-8 has surrogates, which JSON can only hold escaped.
    """
    try:
        return orjson.dumps(content).decode()
    except orjson.JSONEncodeError:
        return json.dumps(content, separators=(",", ":"))
