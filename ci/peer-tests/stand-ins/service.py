"""Stands for kafka-python's `test/service.py`, which its source distributions leave out and their fixtures import.

Nothing is started by way of it where KAFKA_URI names a broker.
"""


class ExternalService:
    """A broker that somebody else has started, and stops."""

    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        """It is there."""

    def close(self):
        """It stays."""


class SpawnedService:
    def __init__(self, arguments, environment=None):
        raise RuntimeError(f"only the broker of KAFKA_URI is there; a fixture wants to run {arguments}")
