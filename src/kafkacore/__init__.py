"""kafkacore: an Apache Kafka node, broker and controller, small enough for a test and fast enough for a service."""

from kafkacore._version import __version__

__all__ = ["__version__"]
