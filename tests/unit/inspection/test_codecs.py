"""The lines that name the library in use for each codec. A node logs them when it starts, and `kafkacore storage info`
prints them."""

import logging

from kafkacore._fast.codec.compression import CodecLibrary, codec_libraries
from kafkacore.inspection.codecs import describe_codecs, log_codecs


def library(codec, work, name, version="1.0", *, is_fallback=False):
    return CodecLibrary(codec, work, name, version, None, is_fallback)


FAST = [library("gzip", "inflate", "zlib-ng", "2.2.4"), library("gzip", "deflate", "zlib", "1.3.1")]
SLOW = [
    library("gzip", "inflate", "zlib", "1.3.1", is_fallback=True),
    library("gzip", "deflate", "zlib", "1.3.1"),
    library("snappy", "inflate", "kafkacore", "0.1.0", is_fallback=True),
    library("snappy", "deflate", "kafkacore", "0.1.0", is_fallback=True),
    library("lz4", "inflate", "liblz4", None),
    library("lz4", "deflate", "liblz4", None),
]


def test_each_codec_has_one_line():
    assert describe_codecs(FAST) == ["gzip: zlib-ng 2.2.4 inflates, zlib 1.3.1 deflates"]
    assert describe_codecs(SLOW) == [
        "gzip: zlib 1.3.1 (faster: pip install zlib-ng)",
        "snappy: kafkacore 0.1.0 (faster: install libsnappy.so.1)",
        "lz4: liblz4",
    ]


def test_log_names_every_library_and_warns_of_a_slow_fallback(caplog):
    with caplog.at_level(logging.INFO, "kafkacore.codecs"):
        log_codecs(FAST)
        log_codecs(SLOW)
    fast, slow, warning = caplog.records
    assert (fast.levelname, fast.getMessage()) == ("INFO", f"libraries in use: {describe_codecs(FAST)[0]}")
    assert (slow.levelname, slow.getMessage()) == ("INFO", f"libraries in use: {'; '.join(describe_codecs(SLOW))}")
    assert (warning.levelname, warning.getMessage()) == (
        "WARNING",
        "gzip batches are served by a slower library (gzip: zlib 1.3.1); to speed them up: pip install zlib-ng",
    )


def test_libraries_of_this_process_are_described():
    assert [line.split(":")[0] for line in describe_codecs()] == ["gzip", "snappy", "lz4", "zstd"]
    assert {each.codec for each in codec_libraries()} == {"gzip", "snappy", "lz4", "zstd"}
