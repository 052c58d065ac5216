"""Registers the format `kafkacore`: Spark takes a DefaultSource from each top-level module named `pyspark_*`.

Spark imports this module when a session first asks for a Python source, so the module loads only the source's class.
"""

from kafkacore.spark.source import KafkaCoreSource as DefaultSource

__all__ = ["DefaultSource"]
