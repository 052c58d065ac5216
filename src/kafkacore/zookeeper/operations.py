"""The operations of ZooKeeper, their results, and a server's error codes (ZooKeeper 3.8, `KeeperException.Code`)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

ANY_VERSION: Final = -1  # matches every version of a znode


class Code(IntEnum):
    """The reason why an operation failed. Codes below -100 result from the state of the znode or of the session."""

    OK = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2  # in a multi: another operation of the multi failed
    DATA_INCONSISTENCY = -3
    CONNECTION_LOSS = -4  # the outcome is unknown: the operation may have taken effect
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    OPERATION_TIMEOUT = -7
    BAD_ARGUMENTS = -8
    API_ERROR = -100
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_CALLBACK = -113
    INVALID_ACL = -114
    AUTH_FAILED = -115
    SESSION_MOVED = -118
    NOT_READONLY = -119
    EPHEMERAL_ON_LOCAL_SESSION = -120
    NO_WATCHER = -121
    REQUEST_TIMEOUT = -122
    SESSION_CLOSED_REQUIRE_SASL_AUTH = -124
    QUOTA_EXCEEDED = -125
    THROTTLED = -127

    @classmethod
    def of(cls, number: int) -> Code:
        """Returns the code with this number, or SYSTEM_ERROR for a number that this client does not know."""
        return _CODES.get(number, cls.SYSTEM_ERROR)


_CODES: Final = {int(code): code for code in Code}


class Stat(NamedTuple):
    """The metadata of a znode. A zxid is the number of a transaction. Times are in milliseconds since 1970."""

    czxid: int  # the transaction that created the znode; for a broker's registration, its generation (KIP-380)
    mzxid: int  # the transaction that last changed the znode's data
    ctime_ms: int
    mtime_ms: int
    version: int  # the number of changes of the data
    cversion: int  # the number of changes of the children
    aversion: int  # the number of changes of the ACL
    ephemeral_owner: int  # the session to which an ephemeral znode belongs; 0 for a persistent znode
    data_bytes: int
    children: int
    pzxid: int  # the transaction that last changed the children


class Permission(IntEnum):
    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16
    ALL = 31


class Acl(NamedTuple):
    """Permissions for one identity. `permissions` is a sum of `Permission` values."""

    permissions: int
    scheme: str
    identity: str


OPEN_ACL: Final = (Acl(Permission.ALL, "world", "anyone"),)
CREATOR_ALL_ACL: Final = (Acl(Permission.ALL, "auth", ""),)
READ_ACL: Final = (Acl(Permission.READ, "world", "anyone"),)


class CreateMode(IntEnum):
    PERSISTENT = 0
    EPHEMERAL = 1
    PERSISTENT_SEQUENTIAL = 2
    EPHEMERAL_SEQUENTIAL = 3

    @property
    def is_ephemeral(self) -> bool:
        return self in {CreateMode.EPHEMERAL, CreateMode.EPHEMERAL_SEQUENTIAL}

    @property
    def is_sequential(self) -> bool:
        return self in {CreateMode.PERSISTENT_SEQUENTIAL, CreateMode.EPHEMERAL_SEQUENTIAL}


class Create(NamedTuple):
    """Creates a znode. Result: `Created`. The server appends ten digits to the path of a sequential znode. This client
    treats null data as empty data, although Apache Kafka distinguishes the two."""

    path: str
    data: bytes | None = b""
    mode: CreateMode = CreateMode.PERSISTENT
    acl: Sequence[Acl] = OPEN_ACL


class Created(NamedTuple):
    """The result of a Create: the path, with its sequence number if it has one, and the `Stat` of the new znode."""

    path: str
    stat: Stat


class Delete(NamedTuple):
    """Deletes a znode. Result: None. Fails with NOT_EMPTY if the znode has children."""

    path: str
    version: int = ANY_VERSION


class SetData(NamedTuple):
    """Replaces the data of a znode. Result: Stat."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Checks that the znode has this version, and fails with BAD_VERSION otherwise. Only allowed in a Multi. Result:
    None."""

    path: str
    version: int


class Exists(NamedTuple):
    """Checks whether a znode exists. Result: Stat, or the code NO_NODE. The watch is set in both cases."""

    path: str
    watch: bool = False


class GetData(NamedTuple):
    """Reads the data of a znode. Result: (bytes, Stat)."""

    path: str
    watch: bool = False


class GetChildren(NamedTuple):
    """Lists the children of a znode. Result: (list of names, Stat). The names are in no particular order."""

    path: str
    watch: bool = False


class GetAcl(NamedTuple):
    """Reads the ACL of a znode. Result: (list of Acl, Stat)."""

    path: str


class SetAcl(NamedTuple):
    """Replaces the ACL of a znode. Result: Stat."""

    path: str
    acl: Sequence[Acl]
    version: int = ANY_VERSION


class Sync(NamedTuple):
    """Lets the server catch up with ZooKeeper's leader. Later reads on this connection then return everything that was
    committed before. Result: the path."""

    path: str


class Multi(NamedTuple):
    """Executes several operations atomically. Result: a list with a `Result` for each operation.

    A failed multi has the code of its first failed operation. The list then contains OK for the operations before the
    failed operation, and RUNTIME_INCONSISTENCY for the operations after it. Instead of the list, the value is None if
    the server did not process the operations.
    """

    operations: Sequence[Create | Delete | SetData | Check]


Operation = Create | Delete | SetData | Exists | GetData | GetChildren | GetAcl | SetAcl | Sync | Multi


class Result(NamedTuple):
    """The outcome of one operation. The docstring of the operation's class gives the type of `value`. After a failure
    `value` is None; only a failed Multi has a list."""

    code: Code
    value: Any = None

    @property
    def is_ok(self) -> bool:
        return self.code == 0


class EventType(IntEnum):
    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


class WatchEvent(NamedTuple):
    """An event: a watch has fired, and is no longer set. `path` is the client's path, without the chroot."""

    type: EventType
    path: str


class ZooKeeperError(Exception):
    """An operation failed with an error code that its caller did not expect."""

    def __init__(self, code: Code, path: str) -> None:
        super().__init__(f"{code.name} for {path}")
        self.code = code
        self.path = path
