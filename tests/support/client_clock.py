"""The clock of the data client, which a test can move."""

import time

from kafkacore.client import cluster, connection, in_flight, positions, producer, reader


class ClientClock:
    """Takes the place of the module `time` in the client. `skip` moves the clock forward."""

    def __init__(self, monkeypatch):
        self.skipped_s = 0.0
        for module in (cluster, connection, in_flight, positions, producer, reader):
            monkeypatch.setattr(module, "time", self)

    def skip(self, seconds):
        self.skipped_s += seconds

    def monotonic(self):
        return time.monotonic() + self.skipped_s

    def __getattr__(self, name):
        return getattr(time, name)
