"""Reads the tables of the Spark data source `kafkacore-log` as Spark's workers read them, but without a JVM."""

import pyarrow as pa

from kafkacore.spark.columns import arrow_schema
from kafkacore.spark.log.source import KafkaCoreLogSource


def table(path, name="records", **options):
    """Returns the whole table as a PyArrow table. Plans and runs all its tasks in this process."""
    source = KafkaCoreLogSource({"path": str(path), "table": name, **options})
    schema = source.schema()
    reader = source.reader(schema)
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    return pa.Table.from_batches(batches, schema=arrow_schema(schema))


def rows(path, name="records", **options):
    return table(path, name, **options).to_pylist()
