"""The columns of a Kafka record in Spark: the schema, which is the same as in Spark's Kafka connector; the choice of
columns in a query; and Arrow batches with the chosen columns.
"""

from collections.abc import Collection
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafkacore.spark.errors import OptionError, SchemaError

HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
RECORD: Final = StructType([
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
    StructField("headers", HEADERS),
])  # fmt: skip


def chosen_columns(whole: StructType, columns: Collection[str], *, include_headers: bool) -> StructType:
    """Returns the columns that the option `columns` names, in the option's order. Returns all columns of `whole` if the
    option is not given.

    Raises:
        OptionError: the option names a column that does not exist, or names one twice.
    """
    if not columns:
        return StructType([field for field in whole.fields if include_headers or field.name != "headers"])
    by_name = {name.lower(): name for name in whole.names}
    unknown = [name for name in columns if name.lower() not in by_name]
    if unknown or len({name.lower() for name in columns}) != len(columns):
        raise OptionError(
            f"option columns must name columns of {', '.join(whole.names)}, each once, separated by commas, but it is"
            f" {','.join(columns)!r}"
        )
    return StructType([whole[by_name[name.lower()]] for name in columns])


def check_choice(schema: StructType, whole: StructType, what: str) -> None:
    """Checks that the schema that a user gave with `.schema(...)` consists of columns of `whole`. Error messages use
    `what` as the name of the table.

    Raises:
        SchemaError: a column does not exist, has another type, or occurs twice.
    """
    for field in schema.fields:
        if field.name not in whole.names:
            raise SchemaError(f"{what} has no column {field.name!r}: its columns are {', '.join(whole.names)}")
        expected = whole[field.name].dataType
        if field.dataType.simpleString() != expected.simpleString():
            raise SchemaError(
                f"column {field.name} is {expected.simpleString()}, and the schema asks for"
                f" {field.dataType.simpleString()}: read the column as it is, and then cast it"
            )
    if len(set(schema.names)) != len(schema.names):
        raise SchemaError("the schema names a column twice")


def arrow_schema(schema: StructType) -> pa.Schema:
    """Returns the Arrow schema that Spark expects of the batches."""
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # PySpark 4.0
        return to_arrow_schema(schema)


def fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Returns the columns of `batch` in the order and with the types of `schema`, without a copy."""
    if batch.schema.equals(schema):
        return batch
    columns = [batch.column(field.name) for field in schema]
    return pa.RecordBatch.from_arrays(
        [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(columns, schema, strict=True)
        ],
        schema=schema,
    )
