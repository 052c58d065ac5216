"""Errors of the Spark source and sink: one type for each kind of user mistake and of data loss.

Spark shows the text of an error, not its type, so each text names the option, the topic, the partition and the offsets.
"""


class OptionError(ValueError):
    """An option is missing, invalid, or contradicts another option. The text names the option and the values that are
    allowed."""


class SchemaError(ValueError):
    """The columns that Spark requests or wants to write do not match the columns of a Kafka record."""


class DataLossError(RuntimeError):
    """Records between two offsets are lost, or a topic was deleted or created again. With `failOnDataLoss=false` the
    query continues instead."""


class ChangingDirectoryError(RuntimeError):
    """The files of a replica changed during every attempt to read them."""


class CheckpointError(RuntimeError):
    """A checkpoint holds offsets that this source did not write and cannot read."""


class UnsupportedSparkError(RuntimeError):
    """The installed version of PySpark lacks features that streams of a Python source need."""


class ExactlyOnceError(RuntimeError):
    """A batch cannot be written exactly once: the broker has no transactions, another driver writes for the query, the
    batch took too long, or the checkpoint is outdated."""
