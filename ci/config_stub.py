"""Writes src/kafkacore/config/attributes.pyi: the keys in the tables as typed attributes. A test fails if this file is
out of date.

python ci/config_stub.py
"""

from __future__ import annotations

from pathlib import Path

from kafkacore.config.broker import BrokerConfig
from kafkacore.config.keys import BROKER, TOPIC, Keys

STUB = Path(__file__).parents[1] / "src/kafkacore/config/attributes.pyi"
TYPES = {
    "boolean": "bool",
    "short": "int",
    "int": "int",
    "long": "int",
    "double": "float",
    "list": "tuple[str, ...]",
    "password": "Password",
}
HEAD = """# Made by ci/config_stub.py from the tables of keys; one of Kafka's names has capitals.
# ruff: noqa: N802
from kafkacore.config.values import Password, Value

class KeyAttributes:
    def value(self, name: str) -> Value: ...
"""


def stub() -> str:
    derived = {name for name in vars(BrokerConfig) if not name.startswith("_")}
    return HEAD + class_stub("BrokerKeys", BROKER, derived) + class_stub("TopicKeys", TOPIC, set())


def class_stub(name: str, keys: Keys, derived: set[str]) -> str:
    """Returns the stub of one class with a property for each key, except the keys in `derived` (attributes of the
    subclass)."""
    lines = [f"\nclass {name}(KeyAttributes):"]
    for key in keys:
        attribute = key.name.replace(".", "_")
        if attribute not in derived:
            optional = " | None" if key.default is None and not key.required else ""
            lines.append(f"    @property\n    def {attribute}(self) -> {TYPES.get(key.type, 'str')}{optional}: ...")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    STUB.write_text(stub())
