"""Kafka's client keys: which ones the client honours, ignores or refuses, and which values they accept."""

from __future__ import annotations

import logging

import pytest

from kafkacore.client.errors import OptionError
from kafkacore.client.options import HONOURED, IGNORED, REFUSED, Options, addresses, kind_of, why_refused


def test_defaults_pass_their_own_checks():
    for name, key in HONOURED.items():
        if key.default is not None:
            text = "all" if name == "acks" else str(key.default)
            assert key.read(text) == key.default, name


def test_each_key_has_one_treatment():
    assert not HONOURED.keys() & IGNORED
    assert not (HONOURED.keys() | IGNORED) & REFUSED.keys()
    assert [kind_of(each) for each in ("client.id", "linger.ms", "partitioner.class", "sasl.login.class", "x")] == [
        "honoured", "ignored", "refused", "refused", "unknown",
    ]  # fmt: skip
    assert "PEM" in why_refused("ssl.keymanager.algorithm")


def test_ignored_and_unknown_keys_are_named_in_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        Options({"linger.ms": "5", "fetch.mni.bytes": "1"})
    assert [record.getMessage() for record in caplog.records] == [
        "the option linger.ms is ignored, so it has no effect",
        "the option fetch.mni.bytes is unknown, so it has no effect",
    ]


def test_later_options_stand_before_earlier_ones():
    merged = Options({"client.id": "a", "batch.size": 7}).with_given({"client.id": "b"})
    assert (merged["client.id"], merged["batch.size"], merged["fetch.min.bytes"]) == ("b", 7, 1)
    assert merged.given == {"client.id", "batch.size"}


@pytest.mark.parametrize(
    ("name", "value"),
    [("fetch.max.bytes", "0"), ("fetch.max.bytes", "2147483648"), ("request.timeout.ms", "1.5"), ("acks", "2"),
     ("check.crcs", "yes"), ("compression.type", "brotli"), ("compression.gzip.level", "10")],
)  # fmt: skip
def test_error_names_the_bounds_when_a_value_is_outside(name, value):
    with pytest.raises(OptionError, match=f"{name} is '{value}', but must be"):
        Options({name: value})


@pytest.mark.parametrize(
    ("servers", "found"),
    [("a:1, b:2,", [("a", 1), ("b", 2)]), ("[::1]:9092", [("::1", 9092)]), ("PLAINTEXT://a:1", [("a", 1)])],
)
def test_addresses_are_read_as_kafka_reads_them(servers, found):
    assert addresses(servers) == found
