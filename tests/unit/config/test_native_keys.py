"""Every key that reaches native code does so through one table: as a limit of a plane (the network layer), or as a log
setting of a topic."""

from __future__ import annotations

import ast
import re
from itertools import product
from pathlib import Path

import pytest

import kafkacore
from kafkacore._fast.plane.plane import LIMITS as NATIVE_LIMITS
from kafkacore.config import BrokerConfig, ConfigError, TopicConfig
from kafkacore.config.keys import BROKER, TOPIC
from kafkacore.network.limits import LIMITS, OF_THE_PLANE, PlaneLimits
from kafkacore.storage.log_settings import FIELDS, log_settings

QUORUM = {"controller.quorum.voters": "9@h:9", "controller.listener.names": "CONTROLLER"}
KRAFT = QUORUM | {"process.roles": "broker", "node.id": "1"}
ZOOKEEPER = {"zookeeper.connect": "h:1", "broker.id": "1"}
COMPRESSION_TYPES = ("producer", "gzip", "lz4", "zstd")
EXTREMES = (
    *(str(sign * number) for bits in (15, 31, 63) for sign in (1, -1) for number in ((1 << bits) - 1, 1 << bits)),
    *("-131072", "-2", "-1", "0", "1", "4", "14", "22", "1048576", "-0.0", "1e-320", "NaN", "Infinity"),
    *("", ",", "true", "compact", "compact,delete", "zstd", "uncompressed", "LogAppendTime"),
)  # fmt: skip
STUB = Path(kafkacore.__file__).parent / "_fast/log/settings.pyi"
# These fields contain several numbers or a name, so they do not fit into a single native field.
STRUCTURED = {"max_connections_per_ip_overrides", "of_listeners", "exempt_listener"}


def test_table_of_limits_has_every_native_limit_and_every_field_once():
    native = [limit.native for limit in LIMITS.values() if limit.native]
    assert sorted(native) == sorted({*NATIVE_LIMITS, *OF_THE_PLANE})
    assert {*LIMITS, *STRUCTURED} == set(PlaneLimits._fields)
    assert set(PlaneLimits().native()) == set(NATIVE_LIMITS)


def test_every_key_of_the_table_of_limits_is_a_key_of_a_broker():
    assert [limit.key for limit in LIMITS.values() if limit.key and BROKER.get(limit.key) is None] == []


def test_table_of_log_settings_has_every_native_field():
    tree = ast.parse(STUB.read_text(encoding="utf-8"))
    (init,) = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    assert [argument.arg for argument in init.args.kwonlyargs] == list(FIELDS)


def test_native_field_has_the_default_of_its_key():
    source = STUB.with_suffix(".pyx").read_text(encoding="utf-8")
    signature = source[source.index("self, *,") : source.index("):\n")]
    defaults = {name: ast.literal_eval(value) for name, value in re.findall(r"(\w+)=([\w.-]+)", signature)}
    topic = TopicConfig(BrokerConfig({"process.roles": "broker", "node.id": "1", **QUORUM}), {})
    assert defaults == {field: native.value(topic) for field, native in FIELDS.items()}


def test_every_key_of_the_table_of_log_settings_is_a_key_of_a_topic_or_a_broker():
    keys = {key for native in FIELDS.values() for key in native.keys}
    assert {key for key in keys if TOPIC.get(key) is None} == {"producer.id.expiration.ms"}
    assert BROKER.get("producer.id.expiration.ms") is not None


def accepted(make, *arguments):
    try:
        return make(*arguments)
    except ConfigError:
        return None


@pytest.mark.parametrize("mode", [KRAFT, ZOOKEEPER], ids=["kraft", "zookeeper"])
def test_every_accepted_value_makes_log_settings(mode):
    """A node that cannot make the settings of a log stops, and stops again at each restart."""
    broker, names = BrokerConfig(mode), {name for native in FIELDS.values() for name in native.keys}
    topics = []
    for key, text in product((key for key in TOPIC if key.name in names), EXTREMES):
        values = ({"compression.type": codec, key.name: text} for codec in COMPRESSION_TYPES)
        topics += [accepted(TopicConfig.validate, broker, each) for each in values]
        brokers = [accepted(BrokerConfig, mode | {name: text}) for name, _ in key.broker_keys]
        topics += [TopicConfig(each) for each in brokers if each is not None]
    made = [log_settings(topic) for topic in topics if topic is not None]
    assert {each.flush_ms for each in made} > {0, 1, (1 << 31) - 1}


@pytest.mark.parametrize(("name", "unit"), [
    *((limit.key or name, limit.unit) for name, limit in LIMITS.items()),
    *((field, native.unit) for field, native in FIELDS.items()),
])  # fmt: skip
def test_unit_of_a_field_is_the_one_that_its_name_ends_with(name, unit):
    ending = name.replace(".", "_").rpartition("_")[2]
    assert (ending in {"ms", "bytes"}) == (unit in {"ms", "bytes"})
    assert ending == unit or unit not in {"ms", "bytes"}
