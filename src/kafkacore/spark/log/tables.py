"""The columns of each table of `kafkacore-log`."""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafkacore.spark.columns import RECORD

_INT: Final = IntegerType()
_LONG: Final = LongType()
_TEXT: Final = StringType()
_BOOL: Final = BooleanType()
_TIME: Final = TimestampType()
_INTS: Final = ArrayType(_INT)


def _table(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


# `broker` is the node id in the log directory's meta.properties. `problem` is null in rows without damage. A row that
# describes damage has values only in `problem` and in the columns that locate the damage.
SCHEMAS: Final = {
    "records": StructType([
        StructField("broker", _INT),
        *(field for field in RECORD.fields if field.name != "headers"),
        RECORD["headers"],
        StructField("problem", _TEXT),
    ]),
    "batches": _table(
        broker=_INT, topic=_TEXT, partition=_INT, kind=_TEXT, file=_TEXT, position=_LONG, sizeBytes=_INT, magic=_INT,
        baseOffset=_LONG, lastOffset=_LONG, recordCount=_INT, leaderEpoch=_INT, baseTimestamp=_TIME,
        maxTimestamp=_TIME, timestampType=_INT, producerId=_LONG, producerEpoch=_INT, baseSequence=_INT, codec=_TEXT,
        transactional=_BOOL, control=_BOOL, crc=_LONG, crcOk=_BOOL, problem=_TEXT,
    ),
    "groups": _table(
        broker=_INT, partition=_INT, offset=_LONG, timestamp=_TIME, type=_TEXT, group=_TEXT, topic=_TEXT,
        topicPartition=_INT, committedOffset=_LONG, committedLeaderEpoch=_INT, metadata=_TEXT, commitTimestamp=_TIME,
        tombstone=_BOOL, aborted=_BOOL, key=_TEXT, value=_TEXT, problem=_TEXT,
    ),
    "transactions": _table(
        broker=_INT, partition=_INT, offset=_LONG, timestamp=_TIME, transactionalId=_TEXT, producerId=_LONG,
        producerEpoch=_INT, state=_TEXT, timeoutMs=_INT, tombstone=_BOOL, value=_TEXT, problem=_TEXT,
    ),
    "metadata": _table(
        broker=_INT, file=_TEXT, snapshot=_BOOL, offset=_LONG, leaderEpoch=_INT, timestamp=_TIME, control=_BOOL,
        type=_TEXT, version=_INT, name=_TEXT, topicId=_TEXT, partition=_INT, replicas=_INTS, isr=_INTS, leader=_INT,
        brokerId=_INT, brokerEpoch=_LONG, value=_TEXT, problem=_TEXT,
    ),
    "segments": _table(
        broker=_INT, directory=_TEXT, topic=_TEXT, partition=_INT, kind=_TEXT, file=_TEXT, baseOffset=_LONG,
        sizeBytes=_LONG, active=_BOOL, modified=_TIME,
    ),
    "indexes": _table(
        broker=_INT, topic=_TEXT, partition=_INT, file=_TEXT, type=_TEXT, entry=_INT, offset=_LONG, position=_LONG,
        timestamp=_TIME, problem=_TEXT,
    ),
    "checkpoints": _table(
        broker=_INT, directory=_TEXT, type=_TEXT, topic=_TEXT, partition=_INT, offset=_LONG, epoch=_INT, problem=_TEXT,
    ),
}  # fmt: skip
