"""kafkacore provides the fixtures `kafka_topic` and `kafka_broker`; conftest.py provides `spark`."""

import struct

from payments import SCHEMA_ID, totals


def avro(user, cents, schema_id=SCHEMA_ID):
    """Returns a payment as Confluent's Avro serializer encodes it: the prefix, a string, and a long."""
    name = user.encode()
    return struct.pack(">bI", 0, schema_id) + _long(len(name)) + name + _long(cents)


def _long(value):
    """Returns a long of Avro: zigzag, seven bits in each byte, the lowest bits first."""
    left, out = (value << 1) ^ (value >> 63), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


def test_payments_of_each_user_are_added_up(spark, kafka_broker, kafka_topic):
    for record in (
        avro("ann", 250),
        avro("bob", 100_000),
        avro("ann", -50),
        avro("ann", 9, schema_id=8),  # another schema
        b"no Avro",
    ):
        kafka_broker.produce(kafka_topic, record)
    found = totals(spark, kafka_broker.bootstrap, kafka_topic).collect()
    assert {row.user: row.cents for row in found} == {"ann": 200, "bob": 100_000}
