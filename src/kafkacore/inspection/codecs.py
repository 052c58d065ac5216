"""Reports which library serves each codec of record batches, and which codecs lack a faster library."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import groupby
from typing import Final

from kafkacore._fast.codec.compression import CodecLibrary, codec_libraries

LOG: Final = logging.getLogger("kafkacore.codecs")
# The name of kafkacore's own implementation. It runs without the GIL, as the C libraries do, but it is slower.
_OWN: Final = "kafkacore"
_FASTER: Final = {
    "gzip": "pip install zlib-ng",
    "snappy": "install libsnappy.so.1",
    "lz4": "install liblz4.so.1",
    "zstd": "install libzstd.so.1",
}


def describe_codecs(libraries: Iterable[CodecLibrary] | None = None) -> list[str]:
    """Returns a line for each codec. By default opens the libraries of this process and describes them."""
    found = codec_libraries() if libraries is None else libraries
    return [_describe(codec, list(each)) for codec, each in groupby(found, key=lambda library: library.codec)]


def log_codecs(libraries: Iterable[CodecLibrary] | None = None) -> None:
    """Logs which library serves each codec, and warns about a fallback that reduces the throughput."""
    found = list(codec_libraries() if libraries is None else libraries)
    LOG.info("libraries in use: %s", "; ".join(describe_codecs(found)))
    for codec in dict.fromkeys(each.codec for each in found if each.is_fallback and each.name != _OWN):
        LOG.warning(
            "%s batches are served by a slower library (%s); to speed them up: %s",
            codec,
            _describe(codec, [each for each in found if each.codec == codec], advice=False),
            _FASTER[codec],
        )


def _describe(codec: str, libraries: list[CodecLibrary], *, advice: bool = True) -> str:
    titles = [each.name if each.version is None else f"{each.name} {each.version}" for each in libraries]
    if len(set(titles)) == 1:
        text = f"{codec}: {titles[0]}"
    else:
        works = (f"{title} {each.work}s" for title, each in zip(titles, libraries, strict=True))
        text = f"{codec}: {', '.join(works)}"
    if advice and any(each.is_fallback for each in libraries):
        text += f" (faster: {_FASTER[codec]})"
    return text
