"""The directory into which a pipeline writes. A pipeline must not write among the files that it reads."""

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from kafkacore.spark.errors import OptionError
from kafkacore.spark.log.layout import log_directories
from kafkacore.storage import meta_properties


class OutputError(ValueError):
    """A pipeline would write into a log directory, or replace its own input."""


def check_output(output: str, inputs: Sequence[str]) -> None:
    """Raises OutputError if `output` is a log directory, or lies in one. A directory is a log directory if a path of
    `inputs` leads to it, or if it contains meta.properties."""
    log_dirs = set(_log_directories(inputs))
    here = Path(output).resolve()
    for each in (here, *here.parents):
        if each in log_dirs or os.path.exists(meta_properties.path_in(str(each))):
            raise OutputError(
                f"--output names {output}, but {each} is a log directory, and a broker may not start if it finds other"
                " directories there: name a directory outside of all log directories"
            )


def check_table(path: str, inputs: Sequence[str]) -> None:
    """Raises OutputError if the directory of a table is a path of `inputs`, or contains one. The table would replace
    this input."""
    table = Path(path).resolve()
    for each in _matches(inputs):
        if each.resolve().is_relative_to(table):
            raise OutputError(
                f"the table {path} would replace {each}, which the pipeline reads: name another directory with --output"
            )


def _matches(inputs: Sequence[str]) -> Iterator[Path]:
    for path in ",".join(inputs).split(","):
        for match in glob.glob(path.strip()):
            yield Path(match)


def _log_directories(inputs: Sequence[str]) -> Iterator[Path]:
    for match in _matches(inputs):
        try:
            found = log_directories([str(match)])
        except (OptionError, OSError):
            continue  # the pipeline itself reports a path that it cannot read
        for log_dir, _ in found:
            yield Path(log_dir.path).resolve()
