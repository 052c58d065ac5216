"""What of a node its handlers may use."""

from __future__ import annotations


class BrokerContext:
    pass
