"""Decides whether each `kafka.*` option is passed to the client, ignored with a warning, or refused.

`kafkacore.client.options` lists the client's keys. This module adds two groups: keys that Spark itself sets for sources
and sinks, and keys that apply only to sources or only to sinks. An ignored key cannot change which records are read or
written.
"""

from typing import Final, Literal

from kafkacore.client.options import kind_of, why_refused

Treatment = Literal["honoured", "ignored", "refused"]

READING: Final = frozenset({
    "check.crcs", "client.rack", "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes", "isolation.level",
    "max.partition.fetch.bytes",
})  # fmt: skip
WRITING: Final = frozenset({
    "acks", "batch.size", "compression.gzip.level", "compression.lz4.level", "compression.type",
    "compression.zstd.level", "delivery.timeout.ms", "enable.idempotence", "max.request.size",
    "partitioner.ignore.keys",
    "transaction.timeout.ms",
})  # fmt: skip

REFUSED: Final = {
    "auto.offset.reset": "the options startingOffsets and failOnDataLoss decide where reading starts",
    "enable.auto.commit": "Spark's checkpoint holds the progress of a query, and the query commits no offsets to a "
    "group",
    "key.deserializer": "keys are columns of bytes: decode them with functions of DataFrames",
    "value.deserializer": "values are columns of bytes: decode them with functions of DataFrames",
    "key.serializer": "keys are columns of bytes or text: encode them with functions of DataFrames",
    "value.serializer": "values are columns of bytes or text: encode them with functions of DataFrames",
    "transactional.id": "the option exactlyOnce=true derives the transactional id from the id of the query",
}


def treatment(key: str, *, writes: bool) -> tuple[Treatment, str]:
    """Returns the treatment of `kafka.<key>`, and the reason for it. For a key that is passed to the client the reason
    is empty."""
    if key in REFUSED:
        return "refused", REFUSED[key]
    kind = kind_of(key)
    if kind == "refused":
        return "refused", why_refused(key)
    if kind == "unknown":
        return "ignored", "Kafka's clients have no such key, or kafkacore's client does not support it"
    if kind == "ignored":
        return "ignored", "it has no effect on which records are read or written"
    if key in (READING if writes else WRITING):
        return "ignored", f"it is a key of a {'consumer' if writes else 'producer'}"
    return "honoured", ""
