"""The znodes of a simulated ZooKeeper. Each operation has the same effects and errors as in `PrepRequestProcessor` and
`DataTree` of ZooKeeper 3.8.

A write takes effect immediately or raises `Refused`. A multi that fails has no effect. This module has no sessions,
watches or connections. It returns the events for watches as `changes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kafkacore.zookeeper import paths
from kafkacore.zookeeper.operations import (
    ANY_VERSION,
    OPEN_ACL,
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
    Permission,
    Result,
    SetAcl,
    SetData,
    Stat,
    Sync,
    WatchEvent,
)

Identity = tuple[str, str]  # the scheme and the id of an authenticated client
BUILT_IN: Final = ("/zookeeper", "/zookeeper/config", "/zookeeper/quota")


class Refused(Exception):
    def __init__(self, code: Code) -> None:
        super().__init__(code.name)
        self.code = code


class Node:
    """One znode. `created` counts all children that it ever had. The `cversion` in responses to clients also counts
    deletions."""

    __slots__ = (
        "acl", "aversion", "children", "created", "ctime_ms", "czxid", "data", "mtime_ms", "mzxid", "owner", "pzxid",
        "version",
    )  # fmt: skip

    def __init__(self, data: bytes, acl: Sequence[Acl], zxid: int, now_ms: int, owner: int = 0) -> None:
        self.data = data
        self.acl = tuple(acl)
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime_ms = self.mtime_ms = now_ms
        self.version = self.aversion = self.created = 0
        self.owner = owner
        self.children: dict[str, None] = {}

    def stat(self) -> Stat:
        cversion = self.created * 2 - len(self.children)
        return Stat(
            self.czxid, self.mzxid, self.ctime_ms, self.mtime_ms, self.version, cversion, self.aversion,
            self.owner, len(self.data), len(self.children), self.pzxid,
        )  # fmt: skip


class Tree:
    """The tree of znodes. `zxid` is the zxid of the last write, whether it took effect or was refused."""

    def __init__(self) -> None:
        self.zxid = 0
        self.nodes: dict[str, Node] = {"/": Node(b"", OPEN_ACL, 0, 0)}
        self.ephemerals: dict[int, dict[str, None]] = {}  # the paths of each session's ephemeral znodes
        self.changes: list[WatchEvent] = []
        self._undo: list[Callable[[], object]] = []
        for path in BUILT_IN:
            self.nodes[path] = Node(b"", OPEN_ACL, 0, 0)
            self.nodes[paths.parent(path)].children[paths.name(path)] = None

    # --- writes ---

    def write(
        self, operation: Operation, session_id: int, identities: Iterable[Identity], now_ms: int
    ) -> tuple[Result, list[WatchEvent]]:
        """Executes a write in its own transaction. Returns the result and the changes for watches."""
        self.zxid += 1
        self.changes, self._undo = [], []
        holder = frozenset(identities)
        if isinstance(operation, Multi):
            result = self._multi(operation, session_id, holder, now_ms)
        else:
            try:
                result = Result(Code.OK, self._do(operation, session_id, holder, now_ms))
            except Refused as refused:
                result = Result(refused.code)
        changes, self.changes, self._undo = self.changes, [], []
        return result, changes

    def _multi(self, multi: Multi, session_id: int, holder: frozenset[Identity], now_ms: int) -> Result:
        results: list[Result] = []
        for position, operation in enumerate(multi.operations):
            try:
                results.append(Result(Code.OK, self._do(operation, session_id, holder, now_ms)))
            except Refused as refused:
                for undo in reversed(self._undo):
                    undo()
                self.changes.clear()
                after = len(multi.operations) - position - 1
                failed = [*[Result(Code.OK)] * position, Result(refused.code)]
                return Result(refused.code, failed + [Result(Code.RUNTIME_INCONSISTENCY)] * after)
        return Result(Code.OK, results)

    def _do(self, operation: Operation | Check, session_id: int, holder: frozenset[Identity], now_ms: int) -> object:
        match operation:
            case Create():
                return self._create(operation, session_id, holder, now_ms)
            case Delete():
                self._delete(operation, holder)
                return None
            case SetData():
                return self._set_data(operation, holder, now_ms)
            case Check():
                self._check(operation, holder)
                return None
            case SetAcl():
                return self._set_acl(operation, holder)
        raise Refused(Code.UNIMPLEMENTED)

    def _create(self, create: Create, session_id: int, holder: frozenset[Identity], now_ms: int) -> Created:
        path, mode = create.path, create.mode
        if not path.startswith("/") or "\0" in path:
            raise Refused(Code.BAD_ARGUMENTS)
        acl = _fixed_acl(create.acl, holder)
        above = paths.parent(path)
        parent = self._node(above)
        _permit(parent, Permission.CREATE, holder)
        if mode.is_sequential:
            path = f"{path}{parent.created:010d}"
        _check_path(path)
        if path in self.nodes:
            raise Refused(Code.NODE_EXISTS)
        if parent.owner:
            raise Refused(Code.NO_CHILDREN_FOR_EPHEMERALS)
        owner = session_id if mode.is_ephemeral else 0
        self._add(path, Node(create.data or b"", acl, self.zxid, now_ms, owner))
        return Created(path, self.nodes[path].stat())

    def _add(self, path: str, node: Node) -> None:
        above = paths.parent(path)
        parent = self.nodes[above]
        before = parent.created, parent.pzxid
        self.nodes[path] = node
        parent.children[paths.name(path)] = None
        parent.created += 1
        parent.pzxid = self.zxid
        if node.owner:
            self.ephemerals.setdefault(node.owner, {})[path] = None

        def undo() -> None:
            del self.nodes[path], parent.children[paths.name(path)]
            parent.created, parent.pzxid = before
            if node.owner:
                del self.ephemerals[node.owner][path]

        self._undo.append(undo)
        self.changes += (WatchEvent(EventType.CREATED, path), WatchEvent(EventType.CHILDREN_CHANGED, above))

    def _delete(self, delete: Delete, holder: frozenset[Identity]) -> None:
        path = delete.path
        if not path.startswith("/") or "\0" in path or path == "/" or path in BUILT_IN:
            raise Refused(Code.BAD_ARGUMENTS)
        parent = self._node(paths.parent(path))
        _permit(parent, Permission.DELETE, holder)
        node = self._node(path)
        _match(node.version, delete.version)
        if node.children:
            raise Refused(Code.NOT_EMPTY)
        self._remove(path)

    def _remove(self, path: str) -> None:
        above = paths.parent(path)
        parent, node = self.nodes[above], self.nodes.pop(path)
        pzxid, parent.pzxid = parent.pzxid, self.zxid
        order = list(parent.children)
        del parent.children[paths.name(path)]
        if node.owner:
            del self.ephemerals[node.owner][path]

        def undo() -> None:
            self.nodes[path] = node
            parent.children = dict.fromkeys(order)
            parent.pzxid = pzxid
            if node.owner:
                self.ephemerals[node.owner][path] = None

        self._undo.append(undo)
        self.changes += (WatchEvent(EventType.DELETED, path), WatchEvent(EventType.CHILDREN_CHANGED, above))

    def _set_data(self, write: SetData, holder: frozenset[Identity], now_ms: int) -> Stat:
        _check_path(write.path)
        node = self._node(write.path)
        _permit(node, Permission.WRITE, holder)
        _match(node.version, write.version)
        before = node.data, node.version, node.mzxid, node.mtime_ms

        def undo() -> None:
            node.data, node.version, node.mzxid, node.mtime_ms = before

        self._undo.append(undo)
        node.data, node.version, node.mzxid, node.mtime_ms = write.data, node.version + 1, self.zxid, now_ms
        self.changes.append(WatchEvent(EventType.DATA_CHANGED, write.path))
        return node.stat()

    def _check(self, check: Check, holder: frozenset[Identity]) -> None:
        _check_path(check.path)
        node = self._node(check.path)
        _permit(node, Permission.READ, holder)
        _match(node.version, check.version)

    def _set_acl(self, write: SetAcl, holder: frozenset[Identity]) -> Stat:
        _check_path(write.path)
        acl = _fixed_acl(write.acl, holder)
        node = self._node(write.path)
        _permit(node, Permission.ADMIN, holder)
        _match(node.aversion, write.version)
        node.acl, node.aversion = acl, node.aversion + 1
        return node.stat()

    def end_session(self, session_id: int) -> list[WatchEvent]:
        """Deletes a session's ephemeral znodes in one transaction. Returns the changes for watches."""
        self.zxid += 1
        self.changes, self._undo = [], []
        for path in list(self.ephemerals.get(session_id, ())):
            self._remove(path)
        self.ephemerals.pop(session_id, None)
        changes, self.changes, self._undo = self.changes, [], []
        return changes

    # --- reads ---

    def read(self, operation: Operation, identities: Iterable[Identity]) -> Result:
        holder = frozenset(identities)
        try:
            return Result(Code.OK, self._read(operation, holder))
        except Refused as refused:
            return Result(refused.code)

    def _read(self, operation: Operation, holder: frozenset[Identity]) -> object:
        if isinstance(operation, Sync):
            return operation.path
        if isinstance(operation, Multi):
            raise Refused(Code.UNIMPLEMENTED)
        if isinstance(operation, Exists) and "\0" in operation.path:
            raise Refused(Code.BAD_ARGUMENTS)
        node = self._node(operation.path)
        if isinstance(operation, GetAcl):
            _permit(node, Permission.READ | Permission.ADMIN, holder)
            return list(node.acl), node.stat()
        _permit(node, Permission.READ, holder)
        if isinstance(operation, Exists):
            return node.stat()
        if isinstance(operation, GetData):
            return node.data, node.stat()
        if isinstance(operation, GetChildren):
            return list(node.children), node.stat()
        raise Refused(Code.UNIMPLEMENTED)

    def _node(self, path: str) -> Node:
        node = self.nodes.get(path)
        if node is None:
            raise Refused(Code.NO_NODE)
        return node


def _check_path(path: str) -> None:
    try:
        paths.check(path)
    except ValueError:
        raise Refused(Code.BAD_ARGUMENTS) from None


def _match(actual: int, wanted: int) -> None:
    if wanted not in {ANY_VERSION, actual}:
        raise Refused(Code.BAD_VERSION)


def _permit(node: Node, permissions: int, holder: frozenset[Identity]) -> None:
    """Raises Refused unless one of the identities in `holder` has at least one of the permissions."""
    for granted, scheme, identity in node.acl:
        if granted & permissions and ((scheme, identity) in holder or (scheme, identity) == ("world", "anyone")):
            return
    raise Refused(Code.NO_AUTH)


def _fixed_acl(acl: Sequence[Acl], holder: frozenset[Identity]) -> tuple[Acl, ...]:
    """Returns the ACL with the identities in `holder` in place of the scheme `auth`. Raises Refused."""
    fixed: dict[Acl, None] = {}
    for permissions, scheme, identity in acl:
        if scheme == "auth":
            for each in sorted(holder):
                fixed[Acl(permissions, *each)] = None
            if not holder:
                raise Refused(Code.INVALID_ACL)
        elif (scheme, identity) == ("world", "anyone") or (scheme == "digest" and identity.count(":") == 1):
            fixed[Acl(permissions, scheme, identity)] = None
        else:
            raise Refused(Code.INVALID_ACL)
    if not fixed:
        raise Refused(Code.INVALID_ACL)
    return tuple(fixed)
