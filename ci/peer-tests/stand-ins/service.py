"""Replaces kafka-python's `test/service.py`, which its fixtures import and its source distributions leave out.

If KAFKA_URI is set to a broker, the fixtures start nothing.
"""


class ExternalService:
    """A broker that run.py starts and stops."""

    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        """Does nothing, because the broker already runs."""

    def close(self):
        """Does nothing, because the broker must keep running."""


class SpawnedService:
    def __init__(self, arguments, environment=None):
        raise RuntimeError(f"the tests must use the broker of KAFKA_URI, but a fixture wants to start {arguments}")
