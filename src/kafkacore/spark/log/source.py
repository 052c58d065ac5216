"""`spark.read.format("kafkacore-log")`: the files in log directories as tables, through PySpark's DataSource API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from kafkacore.spark.log.options import log_options

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader
    from pyspark.sql.types import StructType


class KafkaCoreLogSource(DataSource):
    """The data source `kafkacore-log`. It supports only batch reads. docs/spark.md lists the options and the tables."""

    @classmethod
    def name(cls) -> str:
        return "kafkacore-log"

    def schema(self) -> StructType:
        from kafkacore.spark.columns import chosen_columns  # noqa: PLC0415
        from kafkacore.spark.log.tables import SCHEMAS  # noqa: PLC0415

        options = log_options(self.options)
        return chosen_columns(SCHEMAS[options.table], options.columns, include_headers=options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        from kafkacore.spark.log.reading import LogReader  # noqa: PLC0415
        from kafkacore.spark.log.times import FilteringLogReader  # noqa: PLC0415

        options = log_options(self.options)
        return FilteringLogReader(options, schema) if options.push_filters else LogReader(options, schema)
