"""Ends ZooKeeper sessions, or breaks their connections, at a chosen request."""

from contextlib import contextmanager
from unittest.mock import patch

from kafkacore.simulation import zookeeper_wire as wire
from kafkacore.simulation.zookeeper_server import Connection
from kafkacore.zookeeper import paths
from kafkacore.zookeeper.operations import Check, Multi

UPKEEP = (wire.Ping, wire.Auth, wire.SetWatches, wire.Close)  # these only maintain a session, so they are not counted


class SessionEnds:
    """Counts the requests of the sessions in `sessions`. When request number `at` arrives, the session that sent it
    ends. Then counts the requests of all sessions of brokers from 1 again, up to the next number in `rest`.

    If `takes_effect`, ZooKeeper executes that request before the session ends; the client never gets the answer. If
    `breaks`, only the connection ends. `violations` has a sentence for each fenced write that ZooKeeper later accepts
    from a session that does not own `/controller`."""

    def __init__(self, world, sessions, at=None, *rest, takes_effect=False, breaks=False):
        self.world, self.sessions, self.takes_effect, self.breaks = world, sessions, takes_effect, breaks
        self.at, self.rest = at, rest
        self.count, self.ended, self.violations = 0, [], []
        tree = world.zookeeper.tree
        self._write = tree.write
        tree.write = self._watched_write

    @contextmanager
    def counting(self):
        read = Connection._read

        def counted_read(connection, frame):
            session = connection._session
            if session is None or not self._is_last(session.session_id, frame):
                read(connection, frame)
                return
            if self.takes_effect:
                transport, connection._transport = connection._transport, None
                read(connection, frame)
                connection._transport = transport
            if self.breaks:
                connection.cut()
            else:
                self.world.zookeeper.expire(session.session_id)

        with patch.object(Connection, "_read", counted_read):
            yield self

    def _is_last(self, session_id, frame):
        if session_id == self.world.admin.session_id or not (self.sessions is None or session_id in self.sessions):
            return False
        request = wire.decode_request(frame)[1]
        if isinstance(request, UPKEEP):
            return False
        self.count += 1
        if self.count != self.at:
            return False
        self.ended.append(request)
        self.count, self.sessions = 0, None
        self.at, *self.rest = self.rest or [None]
        return True

    def _watched_write(self, operation, session_id, *rest):
        node = self.world.node(paths.CONTROLLER)
        owner = node and node.owner
        result, changes = self._write(operation, session_id, *rest)
        if self.ended and result.is_ok and session_id != owner and isinstance(operation, Multi):
            first, *writes = operation.operations
            if isinstance(first, Check):
                self.violations.append(f"a broker that is not the controller wrote {[each.path for each in writes]}")
        return result, changes
