"""The data source `kafkacore`: a drop-in replacement for Spark's own `format("kafka")`. It needs no jar, because it
uses PySpark's DataSource API.

This module is cheap to import. PyArrow and the client are loaded when Spark requests a reader or a writer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyspark
from pyspark.sql.datasource import DataSource

from kafkacore.spark.errors import OptionError, UnsupportedSparkError
from kafkacore.spark.options import Given, sink_options, source_options

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

STREAMS_SINCE = (4, 2)


class KafkaCoreSource(DataSource):
    """The data source for `spark.read.format("kafkacore")`, `readStream`, `write` and `writeStream`. docs/spark.md
    lists its options."""

    @classmethod
    def name(cls) -> str:
        return "kafkacore"

    def schema(self) -> StructType:
        from kafkacore.spark.columns import RECORD, chosen_columns  # noqa: PLC0415

        given = Given(self.options)
        columns = [name.strip() for name in (given.text("columns") or "").split(",") if name.strip()]
        return chosen_columns(RECORD, columns, include_headers=given.boolean("includeHeaders", default=False))

    def reader(self, schema: StructType) -> DataSourceReader:
        from kafkacore.spark.batch import BatchReader, FilteringReader  # noqa: PLC0415

        options = source_options(self.options, streaming=False)
        return FilteringReader(options, schema) if options.push_filters else BatchReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        need_streams()
        from kafkacore.spark.stream import StreamReader  # noqa: PLC0415

        return StreamReader(source_options(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from kafkacore.spark.sink import BatchWriter  # noqa: PLC0415

        if overwrite:
            raise OptionError('a topic cannot be overwritten: write with .mode("append")')
        return BatchWriter(sink_options(self.options, streaming=False), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        # `overwrite` is true for the output mode `complete`. The sink then appends each result, as Spark's connector
        # does.
        need_streams()
        options = sink_options(self.options, streaming=True)
        if options.exactly_once:
            from kafkacore.spark.exactly_once import ExactlyOnceWriter  # noqa: PLC0415

            return ExactlyOnceWriter(options, schema)
        from kafkacore.spark.stream_sink import StreamWriter  # noqa: PLC0415

        return StreamWriter(options, schema)


def need_streams() -> None:
    """Checks the version of PySpark. :raises UnsupportedSparkError: PySpark is older than 4.2, so its Python sources
    lack admission control and AvailableNow"""
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < STREAMS_SINCE:
        raise UnsupportedSparkError(
            "streams of format kafkacore need PySpark 4.2 or newer, where Python sources have admission control"
            f" and Trigger.AvailableNow; this is PySpark {pyspark.__version__}. Batch reads and"
            " writes work from PySpark 4.0"
        )
