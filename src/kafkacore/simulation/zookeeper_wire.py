"""The server's side of ZooKeeper's wire format (jute): decodes clients' requests and encodes answers."""

from __future__ import annotations

import base64
import hashlib
from struct import Struct
from typing import Any, Final, NamedTuple

from kafkacore.zookeeper import jute
from kafkacore.zookeeper.jute import MalformedFrameError, Reader, blob
from kafkacore.zookeeper.operations import (
    Acl,
    Check,
    Code,
    Create,
    Created,
    CreateMode,
    Delete,
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

_FLAG: Final = Struct(">?")
_LONG: Final = Struct(">q")
_HELLO: Final = Struct(">iqiqi16s")
_PART: Final = Struct(">i?i")
_STAT: Final = Struct(">qqqqiiiqiiq")
_CONNECTED_STATE: Final = 3  # the state in an event: the client is connected


class Hello(NamedTuple):
    last_zxid: int
    timeout_ms: int
    session_id: int
    password: bytes


class SetWatches(NamedTuple):
    last_zxid: int
    data: list[str]
    creation: list[str]
    children: list[str]


class Auth(NamedTuple):
    scheme: str
    identity: bytes


class Ping(NamedTuple):
    pass


class Close(NamedTuple):
    pass


Request = Operation | SetWatches | Auth | Ping | Close


# --- requests ---


def decode_hello(frame: bytes) -> Hello:
    """Decodes the first frame of a connection. Raises MalformedFrameError."""
    _, last_zxid, timeout_ms, session_id, _, password = Reader(frame).unpack(_HELLO)
    return Hello(last_zxid, timeout_ms, session_id, password)


def decode_request(frame: bytes) -> tuple[int, Request]:
    """Returns the xid of a request, and the request. Raises MalformedFrameError."""
    reader = Reader(frame)
    xid, number = reader.number(), reader.number()
    if number == jute.PING:
        return xid, Ping()
    if number == jute.CLOSE:
        return xid, Close()
    if number == jute.AUTH:
        reader.number()
        return xid, Auth(reader.text(), reader.blob())
    if number == jute.SET_WATCHES:
        (last_zxid,) = reader.unpack(_LONG)
        lists = [[reader.text() for _ in range(reader.count(4))] for _ in range(3)]
        return xid, SetWatches(last_zxid, *lists)
    return xid, _operation(number, reader)


def _operation(number: int, reader: Reader) -> Operation:
    if number == jute.MULTI:
        return _multi(reader)
    path = reader.text()
    if number in {jute.EXISTS, jute.GET_DATA, jute.GET_CHILDREN2}:
        (watch,) = reader.unpack(_FLAG)
        reads: dict[int, type[Exists | GetData | GetChildren]]
        reads = {jute.EXISTS: Exists, jute.GET_DATA: GetData, jute.GET_CHILDREN2: GetChildren}
        return reads[number](path, watch)
    if number == jute.GET_ACL:
        return GetAcl(path)
    if number == jute.SYNC:
        return Sync(path)
    if number == jute.SET_ACL:
        return SetAcl(path, _acl(reader), reader.number())
    written = _write(number, path, reader)
    if isinstance(written, Check):
        raise MalformedFrameError("a check is allowed only in a multi")
    return written


def _write(number: int, path: str, reader: Reader) -> Create | Delete | SetData | Check:
    if number == jute.CREATE2:
        data, acl = reader.blob(), _acl(reader)
        try:
            return Create(path, data, CreateMode(reader.number()), acl)
        except ValueError as error:
            raise MalformedFrameError(str(error)) from None
    if number == jute.DELETE:
        return Delete(path, reader.number())
    if number == jute.SET_DATA:
        return SetData(path, reader.blob(), reader.number())
    if number == jute.CHECK:
        return Check(path, reader.number())
    raise MalformedFrameError(f"operation {number} is not simulated")


def _multi(reader: Reader) -> Multi:
    operations: list[Create | Delete | SetData | Check] = []
    while True:
        number, is_end, _ = reader.unpack(_PART)
        if is_end:
            return Multi(operations)
        operations.append(_write(number, reader.text(), reader))


def _acl(reader: Reader) -> list[Acl]:
    return [Acl(reader.number(), reader.text(), reader.text()) for _ in range(reader.count(12))]


def digest_identity(user_and_password: bytes) -> str:
    """Returns the identity in the scheme `digest`: the user, and the hash of user and password."""
    user = user_and_password.partition(b":")[0].decode()
    return f"{user}:{base64.b64encode(hashlib.sha1(user_and_password).digest()).decode()}"  # noqa: S324 - its format


# --- answers ---


def _framed(body: bytes) -> bytes:
    return jute.LENGTH.pack(len(body)) + body


def encode_connected(timeout_ms: int, session_id: int, password: bytes) -> bytes:
    """Encodes the answer to a new connection. A timeout of 0 tells the client that its session has expired."""
    return _framed(jute.LENGTH.pack(0) + Struct(">iq").pack(timeout_ms, session_id) + blob(password) + b"\0")


def encode_event(event: WatchEvent) -> bytes:
    header = jute.REPLY.pack(jute.WATCH_XID, -1, 0)
    return _framed(header + Struct(">ii").pack(event.type, _CONNECTED_STATE) + blob(event.path.encode()))


def encode_answer(xid: int, zxid: int, operation: Operation | None, result: Result) -> bytes:
    """Encodes the answer to an operation. If `operation` is None, the answer is only a header."""
    if isinstance(operation, Multi) and result.value is not None:
        return _framed(jute.REPLY.pack(xid, zxid, 0) + _multi_answer(operation, result.value))
    header = jute.REPLY.pack(xid, zxid, result.code)
    if operation is None or not result.is_ok:
        return _framed(header)
    return _framed(header + _body(operation, result.value))


def _body(operation: Operation | Check, value: Any) -> bytes:
    if isinstance(value, Created):
        return blob(value.path.encode()) + _stat(value.stat)
    if isinstance(value, Stat):
        return _stat(value)
    match operation:
        case GetData():
            return blob(value[0]) + _stat(value[1])
        case GetChildren():
            names = [blob(each.encode()) for each in value[0]]
            return jute.LENGTH.pack(len(names)) + b"".join(names) + _stat(value[1])
        case GetAcl():
            return jute.acl_bytes(value[0]) + _stat(value[1])
        case Sync():
            return blob(value.encode())
    return b""


def _stat(stat: Stat) -> bytes:
    return _STAT.pack(*stat)


_NUMBERS: Final = {Create: jute.CREATE2, Delete: jute.DELETE, SetData: jute.SET_DATA, Check: jute.CHECK}


def _multi_answer(multi: Multi, results: list[Result]) -> bytes:
    failed = any(not result.is_ok for result in results)
    parts = []
    for operation, result in zip(multi.operations, results, strict=True):
        if failed:
            parts.append(_PART.pack(jute.ERROR, False, result.code) + jute.LENGTH.pack(result.code))
        else:
            parts.append(_PART.pack(_NUMBERS[type(operation)], False, 0) + _body(operation, result.value))
    return b"".join(parts) + _PART.pack(-1, True, Code.SYSTEM_ERROR)
