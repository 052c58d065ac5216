"""A Kafka for tests: `Broker` is a node in the process of the test. `close` removes everything that the broker used.

Modules of this package are loaded at their first use, because pytest loads the package's plugin in every run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kafkacore.testing.broker import Broker
    from kafkacore.testing.cluster import Cluster
    from kafkacore.testing.faults import Fault
    from kafkacore.testing.recorder import RecordedRequest

__all__ = ["Broker", "Cluster", "Fault", "RecordedRequest"]

_MODULES: Final = {"Broker": "broker", "Cluster": "cluster", "Fault": "faults", "RecordedRequest": "recorder"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
