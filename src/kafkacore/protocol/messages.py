"""Classes for all messages in the tables. Each class is created at its first use.

from kafkacore.protocol.messages import CreateTopicsRequest

A struct within a message is an attribute of the message's class (`CreateTopicsRequest.CreatableTopic`). Fields are
keyword arguments and attributes, in snake case. A class has the fields of all versions. `decode` and `encode` take the
version as an argument. `ci/stubs.py` generates the stub messages.pyi.
"""

from __future__ import annotations

from typing import Any

from kafkacore._fast.schema.message import Message, Struct, message_class

__all__ = ["Message", "Struct", "message_class"]


def __getattr__(name: str) -> Any:
    if name[:1].isupper():
        try:
            made = globals()[name] = message_class(name)
        except KeyError:
            raise AttributeError(f"no message of Kafka's is called {name!r}") from None
        return made
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
