"""The client's side of ZooKeeper's wire format (jute, big-endian): encodes requests, and decodes results."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from kafkacore.zookeeper.operations import (
    Acl,
    Check,
    Code,
    Create,
    Created,
    Delete,
    EventType,
    Exists,
    GetAcl,
    GetChildren,
    GetData,
    Multi,
    Operation,
    Result,
    SetAcl,
    SetData,
    Stat,
    Sync,
    WatchEvent,
)

# The numbers of operations (ZooDefs.OpCode).
DELETE: Final = 2
EXISTS: Final = 3
GET_DATA: Final = 4
SET_DATA: Final = 5
GET_ACL: Final = 6
SET_ACL: Final = 7
SYNC: Final = 9
PING: Final = 11
GET_CHILDREN2: Final = 12
CHECK: Final = 13
MULTI: Final = 14
CREATE2: Final = 15
AUTH: Final = 100
SET_WATCHES: Final = 101
CLOSE: Final = -11
ERROR: Final = -1

# The xids of requests that have no number of their own.
WATCH_XID: Final = -1
PING_XID: Final = -2
AUTH_XID: Final = -4
SET_WATCHES_XID: Final = -8
LAST_XID: Final = (1 << 31) - 1

LENGTH: Final = Struct(">i")
REPLY: Final = Struct(">iqi")  # xid, zxid, error
_REQUEST: Final = Struct(">iii")  # length, xid, operation
_LONG: Final = Struct(">q")
_FLAG: Final = Struct(">?")
_STAT: Final = Struct(">qqqqiiiqiiq")
_PART: Final = Struct(">i?i")  # a part of a multi: operation, end, error
_SET_PART: Final = Struct(">i?iI")  # the same fields, and the length of the path
_SET_RESULT: Final = Struct(">i?iqqqqiiiqiiq")
_CONNECT: Final = Struct(">iqiqi16s?")
_CONNECTED: Final = Struct(">iiqi")
_MULTI_END: Final = _PART.pack(-1, True, -1)
_SET_PREFIX_OK: Final = _PART.pack(SET_DATA, False, 0)[:5]  # the first bytes of a successful result
_SET_PREFIX: Final = _SET_PART.pack(SET_DATA, False, -1, 0)[:-4]

PASSWORD_BYTES: Final = 16
NO_PASSWORD: Final = bytes(PASSWORD_BYTES)
SET_WATCHES_BYTES: Final = 128 << 10  # the size of the paths in one request, as in ZooKeeper's own client


class MalformedFrameError(Exception):
    """The server sent bytes that are not a valid response."""


class UnsendableError(ValueError):
    """No server would understand this operation: its path is relative, or has unpaired surrogates."""


# --- parts of frames ---


def path_bytes(path: str, chroot: bytes) -> bytes:
    """Returns the path as the server sees it. Raises UnsendableError."""
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        raise UnsendableError(f"a path has unpaired surrogates: {path!r}") from None
    if encoded[:1] != b"/":
        raise UnsendableError(f"a path must start with a slash: {path!r}")
    if not chroot:
        return encoded
    return chroot + encoded if len(encoded) > 1 else chroot


def blob(data: bytes) -> bytes:
    return LENGTH.pack(len(data)) + data


NULL: Final = LENGTH.pack(-1)


def acl_bytes(acl: Sequence[Acl]) -> bytes:
    entries = [
        LENGTH.pack(permissions) + blob(scheme.encode()) + blob(identity.encode())
        for permissions, scheme, identity in acl
    ]
    return LENGTH.pack(len(acl)) + b"".join(entries)


# --- requests ---


def _frame(xid: int, number: int, body: bytes) -> bytes:
    return _REQUEST.pack(8 + len(body), xid, number) + body


def encode(xid: int, operation: Operation, chroot: bytes) -> bytes:
    """Encodes one request, with its length. Raises UnsendableError."""
    number, body = _ENCODERS[type(operation)]
    return _frame(xid, number, body(operation, chroot))


def _create(operation: Create, chroot: bytes) -> bytes:
    path = path_bytes(operation.path, chroot)
    if chroot and operation.path == "/" and operation.mode.is_sequential:
        # The server appends the sequence number to the path. With a slash at the end of the path, the number becomes
        # the name of a child of the chroot.
        path += b"/"
    data = NULL if operation.data is None else blob(operation.data)
    return blob(path) + data + acl_bytes(operation.acl) + LENGTH.pack(operation.mode)


def _versioned(operation: Delete | Check, chroot: bytes) -> bytes:
    return blob(path_bytes(operation.path, chroot)) + LENGTH.pack(operation.version)


def _set_data(operation: SetData, chroot: bytes) -> bytes:
    path = blob(path_bytes(operation.path, chroot))
    return path + blob(operation.data) + LENGTH.pack(operation.version)


def _watched(operation: Exists | GetData | GetChildren, chroot: bytes) -> bytes:
    return blob(path_bytes(operation.path, chroot)) + _FLAG.pack(operation.watch)


def _path(operation: GetAcl | Sync, chroot: bytes) -> bytes:
    return blob(path_bytes(operation.path, chroot))


def _set_acl(operation: SetAcl, chroot: bytes) -> bytes:
    path = blob(path_bytes(operation.path, chroot))
    return path + acl_bytes(operation.acl) + LENGTH.pack(operation.version)


def _multi(operation: Multi, chroot: bytes) -> bytes:
    """Encodes a multi. The controller's most frequent requests are multis with many SetData, so SetData is encoded
    inline, without a function call."""
    pack = LENGTH.pack
    pieces: list[bytes] = []
    for each in operation.operations:
        if type(each) is SetData:
            path, data, version = each
            where = path_bytes(path, chroot)
            pieces += (_SET_PREFIX, pack(len(where)), where, pack(len(data)), data, pack(version))
        else:
            number, body = _ENCODERS[type(each)]
            pieces += (_PART.pack(number, False, -1), body(each, chroot))
    pieces.append(_MULTI_END)
    return b"".join(pieces)


_ENCODERS: Final[dict[type, tuple[int, Callable[[Any, bytes], bytes]]]] = {
    Create: (CREATE2, _create),
    Delete: (DELETE, _versioned),
    SetData: (SET_DATA, _set_data),
    Check: (CHECK, _versioned),
    Exists: (EXISTS, _watched),
    GetData: (GET_DATA, _watched),
    GetChildren: (GET_CHILDREN2, _watched),
    GetAcl: (GET_ACL, _path),
    SetAcl: (SET_ACL, _set_acl),
    Sync: (SYNC, _path),
    Multi: (MULTI, _multi),
}

PING_FRAME: Final = _REQUEST.pack(8, PING_XID, PING)


def encode_close(xid: int) -> bytes:
    return _REQUEST.pack(8, xid, CLOSE)


def encode_connect(last_zxid: int, timeout_ms: int, session_id: int, password: bytes) -> bytes:
    """Encodes the first frame of a connection. A session id of 0 requests a new session. The last byte of the frame
    says that the client does not accept read-only servers."""
    body = _CONNECT.pack(0, last_zxid, timeout_ms, session_id, PASSWORD_BYTES, password, False)
    return LENGTH.pack(len(body)) + body


def encode_auth(scheme: str, identity: bytes) -> bytes:
    return _frame(AUTH_XID, AUTH, LENGTH.pack(0) + blob(scheme.encode()) + blob(identity))


def encode_set_watches(
    last_zxid: int, data: Iterable[str], exists: Iterable[str], children: Iterable[str], chroot: bytes
) -> list[bytes]:
    """Encodes the requests that set all watches again after a reconnect. The server fires those watches whose znode has
    changed since `last_zxid`."""
    named = [(kind, path) for kind, paths in enumerate((data, exists, children)) for path in paths]
    frames = []
    batch: tuple[list[bytes], ...] = ([], [], [])
    size = 0
    for position, (kind, path) in enumerate(named):
        batch[kind].append(blob(path_bytes(path, chroot)))
        size += len(batch[kind][-1])
        if size > SET_WATCHES_BYTES or position == len(named) - 1:
            lists = b"".join(LENGTH.pack(len(each)) + b"".join(each) for each in batch)
            frames.append(_frame(SET_WATCHES_XID, SET_WATCHES, _LONG.pack(last_zxid) + lists))
            batch, size = ([], [], []), 0
    return frames


# --- answers ---


class Connected(NamedTuple):
    """The response to the first frame. A timeout of 0 or less means that the session has expired."""

    timeout_ms: int
    session_id: int
    password: bytes
    is_read_only: bool


class Reader:
    """A position in one frame. Every method raises MalformedFrameError if the frame ends too early."""

    __slots__ = ("frame", "position")

    def __init__(self, frame: bytes, position: int = 0) -> None:
        self.frame = frame
        self.position = position

    def unpack(self, layout: Struct) -> tuple[Any, ...]:
        try:
            values = layout.unpack_from(self.frame, self.position)
        except struct.error:
            raise MalformedFrameError(f"an answer ends after {len(self.frame)} bytes, too early") from None
        self.position += layout.size
        return values

    def number(self) -> int:
        value: int = self.unpack(LENGTH)[0]
        return value

    def blob(self) -> bytes:
        """Reads bytes with their length. The server sends the length -1 for data that is null."""
        length = self.number()
        if length < 0:
            return b""
        start, end = self.position, self.position + length
        if end > len(self.frame):
            raise MalformedFrameError(f"an answer of {len(self.frame)} bytes names {length} more at {start}")
        self.position = end
        return self.frame[start:end]

    def text(self) -> str:
        try:
            return self.blob().decode()
        except UnicodeDecodeError as error:
            raise MalformedFrameError(f"an answer has text that is not UTF-8: {error}") from None

    def count(self, least_bytes: int) -> int:
        """Reads the number of entries of a list. Each entry has at least `least_bytes`."""
        number = self.number()
        if number * least_bytes > len(self.frame) - self.position:
            raise MalformedFrameError(f"an answer of {len(self.frame)} bytes names {number} entries")
        return max(number, 0)

    def stat(self) -> Stat:
        return Stat(*self.unpack(_STAT))


def decode_connected(frame: bytes) -> Connected:
    reader = Reader(frame)
    _, timeout_ms, session_id, length = reader.unpack(_CONNECTED)
    reader.position -= 4
    password = reader.blob()
    if length != PASSWORD_BYTES:
        raise MalformedFrameError(f"a session's password has {length} bytes")
    # Servers before 3.4 do not send the last field.
    is_read_only = reader.position < len(frame) and bool(reader.unpack(_FLAG)[0])
    return Connected(timeout_ms, session_id, password, is_read_only)


def decode_event(frame: bytes, chroot: str) -> WatchEvent | None:
    """Decodes the event in a frame with the xid WATCH_XID. Returns None for an event of a kind that this client does
    not request."""
    reader = Reader(frame, REPLY.size)
    number, _ = reader.number(), reader.number()
    path = reader.text()
    try:
        kind = EventType(number)
    except ValueError:
        return None
    return WatchEvent(kind, without(path, chroot))


def without(path: str, chroot: str) -> str:
    """Returns the client's path for a server's path, without the chroot."""
    inside = path.removeprefix(chroot)
    if not chroot or inside == path or inside[:1] not in {"", "/"}:
        return path
    return inside or "/"


def decode(frame: bytes, code: Code, operation: Operation, chroot: str) -> Result:
    """Decodes the result of the operation. Raises MalformedFrameError."""
    if code:
        return Result(code)
    return _DECODERS[type(operation)](Reader(frame, REPLY.size), chroot)


def _created(reader: Reader, chroot: str) -> Result:
    return Result(Code.OK, Created(without(reader.text(), chroot), reader.stat()))


def _nothing(reader: Reader, chroot: str) -> Result:
    return Result(Code.OK)


def _stat(reader: Reader, chroot: str) -> Result:
    return Result(Code.OK, reader.stat())


def _data(reader: Reader, chroot: str) -> Result:
    return Result(Code.OK, (reader.blob(), reader.stat()))


def _children(reader: Reader, chroot: str) -> Result:
    names = [reader.text() for _ in range(reader.count(4))]
    return Result(Code.OK, (names, reader.stat()))


def _acl(reader: Reader, chroot: str) -> Result:
    entries = [Acl(reader.number(), reader.text(), reader.text()) for _ in range(reader.count(12))]
    return Result(Code.OK, (entries, reader.stat()))


def _synced(reader: Reader, chroot: str) -> Result:
    return Result(Code.OK, without(reader.text(), chroot))


def _results(reader: Reader, chroot: str) -> Result:
    """Decodes the result of a multi. The result's code comes from the operation that caused the failure. The
    controller's most frequent requests are multis with many SetData, so these results are decoded inline, without a
    function call."""
    results: list[Result] = []
    frame, code, new = reader.frame, Code.OK, tuple.__new__
    while True:
        kind, is_end, _ = reader.unpack(_PART)
        if is_end:
            return Result(code, results)
        if kind == SET_DATA:
            position, end = reader.position - _PART.size, len(frame) - _SET_RESULT.size
            while position <= end and frame.startswith(_SET_PREFIX_OK, position):
                values = _SET_RESULT.unpack_from(frame, position)
                results.append(new(Result, (Code.OK, new(Stat, values[3:]))))
                position += _SET_RESULT.size
            if position < reader.position:
                raise MalformedFrameError(f"a multi's answer ends after {len(frame)} bytes, too early")
            reader.position = position
        elif kind == CREATE2:
            results.append(_created(reader, chroot))
        elif kind in {DELETE, CHECK}:
            results.append(Result(Code.OK))
        elif kind == ERROR:
            failed = Code.of(reader.number())
            results.append(Result(failed))
            code = code or failed
        else:
            raise MalformedFrameError(f"a multi's answer of {len(frame)} bytes names the operation {kind}")


_DECODERS: Final[dict[type, Callable[[Reader, str], Result]]] = {
    Create: _created,
    Delete: _nothing,
    SetData: _stat,
    Exists: _stat,
    GetData: _data,
    GetChildren: _children,
    GetAcl: _acl,
    SetAcl: _stat,
    Sync: _synced,
    Multi: _results,
}
