"""Proxies that count the frames that they forward. A frame of Kafka or ZooKeeper begins with its size."""

import collections
import contextlib
import socket
import struct
import threading

from kafkacore.protocol import apis
from wire import receive_exactly

WATCH_EVENT, PING = -1, -2  # xids in frames from ZooKeeper that do not answer a caller's request


class Wiretap:
    """Listens on `port` and forwards each connection to `target`. Calls `on_request(connection, frame)` or
    `on_answer(connection, frame)` before it forwards a frame. `connection` is a number."""

    def __init__(self, port, target, on_request, on_answer):
        host, target_port = target.rsplit(":", 1)
        self._target = (host, int(target_port))
        self._on_request, self._on_answer = on_request, on_answer
        self._listener = socket.create_server(("127.0.0.1", port))
        self._sockets, self._lock, self._count = [self._listener], threading.Lock(), 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self):
        with contextlib.suppress(OSError):  # the connection is already closed
            while True:
                near = self._listener.accept()[0]
                try:
                    far = socket.create_connection(self._target, 20)
                except OSError:  # the broker is down
                    near.close()
                    continue
                self._sockets += [near, far]
                self._count += 1
                for pair in ((near, far, self._on_request), (far, near, self._on_answer)):
                    threading.Thread(target=self._pass, args=(self._count, *pair), daemon=True).start()

    def _pass(self, connection, source, sink, seen):
        with contextlib.suppress(OSError):
            while True:
                frame = receive_exactly(source, struct.unpack(">i", receive_exactly(source, 4))[0])
                with self._lock:
                    seen(connection, frame)
                sink.sendall(struct.pack(">i", len(frame)) + frame)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class KafkaCounts:
    """A Kafka proxy that records requests as (time, API key, version, frame), and answers as (time, API key, frame)."""

    def __init__(self, clock):
        self._clock, self.requests, self.answers = clock, [], []
        self._waiting = collections.defaultdict(collections.deque)

    def on_request(self, connection, frame):
        key, version = struct.unpack_from(">hh", frame)
        self.requests.append((self._clock(), key, version, frame))
        self._waiting[connection].append(key)

    def on_answer(self, connection, frame):
        if self._waiting[connection]:
            self.answers.append((self._clock(), self._waiting[connection].popleft(), frame))

    def between(self, begin, end, key):
        """Returns the decoded requests of one API that passed between two times."""
        return [
            apis.decode_request(apis.decode_request_header(frame), frame)
            for at, each, _, frame in self.requests
            if each == key and begin <= at <= end
        ]


class ZooKeeperCounts:
    """A ZooKeeper proxy. For each request, `sent` holds (time, operation, whether the request began a round trip). A
    request that is sent while others are in flight costs no additional round trip."""

    def __init__(self, clock):
        self._clock, self.sent = clock, []
        self._under_way = collections.Counter()
        self._begun = set()

    def on_request(self, connection, frame):
        if connection not in self._begun:  # the first frame opens the session, and has no xid
            self._begun.add(connection)
            self._under_way[connection] += 1
            return
        xid, operation = struct.unpack_from(">ii", frame)
        if xid != PING:
            self.sent.append((self._clock(), operation, not self._under_way[connection]))
            self._under_way[connection] += 1

    def on_answer(self, connection, frame):
        if struct.unpack_from(">i", frame)[0] not in (WATCH_EVENT, PING):
            self._under_way[connection] -= 1

    def between(self, begin, end):
        """Returns how many requests and how many round trips began between two times."""
        found = [first for at, _, first in self.sent if begin <= at <= end]
        return len(found), sum(found)
