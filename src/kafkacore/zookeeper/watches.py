"""The watches of a session that have not fired yet. After a reconnect, the client sets them on the new server."""

from __future__ import annotations

from kafkacore.zookeeper import jute
from kafkacore.zookeeper.operations import Code, EventType, Exists, GetChildren, GetData, Operation, WatchEvent


class Watches:
    """Watches of three kinds, as on the server: on the data of a znode, on its creation, and on its children.
    Dictionaries preserve the order, so that a simulated run repeats exactly."""

    def __init__(self) -> None:
        self.data: dict[str, None] = {}
        self.creation: dict[str, None] = {}
        self.children: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self.data) + len(self.creation) + len(self.children)

    def note(self, operation: Operation, code: Code) -> None:
        """Stores the watch that the operation has set, if it has set one."""
        if isinstance(operation, GetData | GetChildren | Exists) and operation.watch:
            if isinstance(operation, Exists) and code is Code.NO_NODE:
                self.creation[operation.path] = None
            elif code is Code.OK:
                kind = self.children if isinstance(operation, GetChildren) else self.data
                kind[operation.path] = None

    def fire(self, event: WatchEvent) -> None:
        """Removes the watches that this event fires. The deletion of a znode fires its watches of all kinds."""
        if event.type is not EventType.CHILDREN_CHANGED:
            self.data.pop(event.path, None)
            self.creation.pop(event.path, None)
        if event.type in {EventType.CHILDREN_CHANGED, EventType.DELETED}:
            self.children.pop(event.path, None)

    def requests(self, last_zxid: int, chroot: bytes) -> list[bytes]:
        """Returns the requests that set all watches again. The server immediately fires the watches whose znode changed
        after `last_zxid`."""
        return jute.encode_set_watches(last_zxid, self.data, self.creation, self.children, chroot)
