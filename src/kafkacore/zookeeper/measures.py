"""Counts of a ZooKeeper client since its creation, for the metrics."""

from __future__ import annotations

from kafkacore.runtime.sampling import Distribution
from kafkacore.zookeeper.session import SessionState


class ClientMeasures:
    """Counts over all sessions of a client. One thread records, and any thread may read."""

    def __init__(self) -> None:
        self.latency_ms = Distribution()  # the time between a request and its answer
        self.connects = 0  # servers that have accepted a session
        self.disconnects = 0  # connections with an accepted session that broke
        self.expired = 0  # sessions that the server has ended
        self.refused = 0  # sessions that ended because the server refused their authentication
        self._state = SessionState.NOT_CONNECTED

    def moved(self, state: SessionState, *, has_expired: bool) -> None:
        """Notes a new state of the client's session."""
        self.connects += state is SessionState.CONNECTED
        self.disconnects += state is SessionState.CONNECTING and self._state is SessionState.CONNECTED
        self.expired += has_expired
        self.refused += state is SessionState.AUTH_FAILED
        self._state = state
