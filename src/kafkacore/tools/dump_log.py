"""`kafkacore dump-log` prints the files of logs, in the format of Apache Kafka's kafka-dump-log or as JSON. With
`--verify`, it checks the files."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

from kafkacore.inspection.decoders import DECODERS, Decoder, by_class
from kafkacore.inspection.dump import DumpOptions, dump_files, expand
from kafkacore.inspection.indexes import DEFAULT_MAX_MESSAGE_BYTES, IndexOptions
from kafkacore.inspection.report import Report
from kafkacore.inspection.segments import RecordOptions

DESCRIPTION: Final = (
    "Prints the files of a log: segments, snapshots of the metadata log, indexes, producer snapshots. "
    "For a directory, all logs in it are printed."
)
_DECODERS: Final = {
    "cluster-metadata": "__cluster_metadata, the log of a KRaft cluster",
    "offsets": "__consumer_offsets",
    "transaction-log": "__transaction_state",
    "share-group-state": "__share_group_state",
}
_NO_LIMIT: Final = -1
_INT_MAX: Final = (1 << 31) - 1  # kafka-dump-log uses this value if there is no limit
_CLASSES: Final = ("StringDecoder", "IntegerDecoder", "LongDecoder")
_PACKAGE: Final = "org.apache.kafka.tools.api"
_KEY_CLASS, _VALUE_CLASS = "--key-decoder-class", "--value-decoder-class"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="FILE", help="a file of a log, or a log's directory")
    parser.add_argument(
        "--files", default="", metavar="FILE,FILE", help="the same files as one argument, separated by commas"
    )
    parser.add_argument("--deep-iteration", action="store_true", help="also print a line for each record")
    parser.add_argument("--print-data-log", action="store_true", help="also print keys and values of records")
    parser.add_argument("--skip-record-metadata", action="store_true", help="print only keys and values of records")
    decoders = parser.add_mutually_exclusive_group()
    for name, topic in _DECODERS.items():
        help_ = f"decode keys and values as records of {topic}"
        decoders.add_argument(f"--{name}-decoder", dest="decoder", action="store_const", const=name, help=help_)
    decoders.add_argument(
        "--remote-log-metadata-decoder", action=_NotHere, help="not supported: there is no tiered storage"
    )
    for option, what in ((_KEY_CLASS, "keys"), (_VALUE_CLASS, "values")):
        help_ = f"show {what} as one of these classes of {_PACKAGE} does: {', '.join(_CLASSES)} (default: the first)"
        parser.add_argument(option, type=_decoder_class, metavar="CLASS", help=help_)
    parser.add_argument(
        "--max-bytes",
        type=_max_bytes,
        default=_NO_LIMIT,
        metavar="N",
        help="read only the first N bytes of each segment",
    )
    parser.add_argument(
        "--max-message-size",
        type=_max_message_size,
        metavar="N",
        help="largest batch that an index may point to, in bytes",
    )
    parser.add_argument(
        "--index-sanity-check", action="store_true", help="check indexes only as a broker does at its start"
    )
    parser.add_argument("--verify-index-only", action="store_true", help="check indexes without printing each entry")
    parser.add_argument(
        "--verify",
        action="store_true",
        help="print only problems of checksums, offsets, leader epochs and indexes; with --deep-iteration, also of "
        "records",
    )
    parser.add_argument(
        "--compacted",
        action="store_true",
        help="with --verify: every log may lack offsets (without it, the cleaner's checkpoint and the metadata log in "
        "the log directory decide)",
    )
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="json prints one object per line"
    )


class _NotHere(argparse.Action):
    """An option of kafka-dump-log that kafkacore refuses, with the reason."""

    def __init__(self, option_strings: Sequence[str], dest: str, **settings: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **settings)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        parser.error(
            f"{self.option_strings[0]}: kafkacore has no tiered storage and cannot decode its records; "
            "kafka-dump-log can, and --print-data-log shows their bytes"
        )


def _decoder_class(name: str) -> str:
    package, _, simple = name.rpartition(".")
    if simple in _CLASSES and package in (_PACKAGE, ""):
        return f"{_PACKAGE}.{simple}"
    raise argparse.ArgumentTypeError(
        f"{name} is not one of {', '.join(_CLASSES)}; kafka-dump-log can load other Java classes"
    )


def _at_least(least: int, text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise argparse.ArgumentTypeError(f"{text} is not a number of bytes of at least {least}")
    return int(text)


def _max_bytes(text: str) -> int:
    asked = _at_least(0, text)
    return asked if asked < _INT_MAX else _NO_LIMIT


def _max_message_size(text: str) -> int:
    return _at_least(1, text)


def run(arguments: argparse.Namespace) -> int:
    paths = [re.sub("/+", "/", path) for path in [*arguments.files.split(","), *arguments.paths] if path]
    if not paths:
        print("kafkacore: dump-log needs the path of a file or directory", file=sys.stderr)
        return 2
    if arguments.decoder is not None and (arguments.key_decoder_class or arguments.value_decoder_class):
        print(
            f"kafkacore: --{arguments.decoder}-decoder reads keys and values: {_KEY_CLASS} and {_VALUE_CLASS} "
            "cannot be combined with it",
            file=sys.stderr,
        )
        return 2
    report = Report(sys.stdout.buffer, sys.stderr, as_json=arguments.output == "json")
    if arguments.verify:
        _verify(expand(paths), arguments, report)
    else:
        dump_files(expand(paths), _options(arguments), report)
    report.flush()
    return 1 if report.problems else 0


def _verify(paths: Iterable[str], arguments: argparse.Namespace, report: Report) -> None:
    from kafkacore.inspection.verify import VerifyOptions, verify_files  # noqa: PLC0415 - loads numpy: some 100 ms

    verify_files(paths, VerifyOptions(arguments.deep_iteration, arguments.compacted), report)


def _options(arguments: argparse.Namespace) -> DumpOptions:
    return DumpOptions(
        RecordOptions(
            records=arguments.deep_iteration,
            contents=arguments.print_data_log or bool(arguments.key_decoder_class or arguments.value_decoder_class),
            skip_metadata=arguments.skip_record_metadata,
            decoder=_decoder(arguments),
            max_bytes=arguments.max_bytes,
        ),
        IndexOptions(
            sanity_only=arguments.index_sanity_check,
            verify_only=arguments.verify_index_only,
            max_message_bytes=arguments.max_message_size or DEFAULT_MAX_MESSAGE_BYTES,
        ),
    )


def _decoder(arguments: argparse.Namespace) -> Decoder | None:
    """Returns the decoder for the chosen format, or None if records are shown as text."""
    text = _decoder_class(_CLASSES[0])
    classes = (arguments.key_decoder_class or text, arguments.value_decoder_class or text)
    if arguments.decoder is None and classes == (text, text):
        return None
    return by_class(*classes) if arguments.decoder is None else DECODERS[arguments.decoder]
