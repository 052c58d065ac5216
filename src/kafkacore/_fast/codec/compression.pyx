"""The Python interface of the codecs, which inflate and deflate bodies of record batches in Kafka's framings. Limits
bound the size of an inflated body."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t

from kafkacore._version import __version__
from kafkacore._fast.codec.context cimport (
    CODEC_CORRUPT, CODEC_GZIP, CODEC_LZ4, CODEC_NO_FILE, CODEC_NO_MEMORY, CODEC_NONE, CODEC_OK, CODEC_SNAPPY,
    CODEC_TOO_LARGE, CODEC_UNAVAILABLE, CODEC_UNKNOWN, CODEC_ZSTD, LEVEL_DEFAULT, codec_context_free,
    codec_context_new, codec_library, codec_needs_gil, deflate_all, default_inflate_limits, inflate_all, inflate_begin,
    inflate_next,
)
from kafkacore._fast.base.cursor cimport Writer, writer_free, writer_init

import os
import re
from typing import NamedTuple

cdef enum:
    MOST_BYTES = 0x7FFFFFFF


class CodecError(ValueError):
    """A body cannot be inflated, or it exceeds a limit. `code` is a `CodecStatus` (context.pxd)."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


NAMES = {"none": CODEC_NONE, "gzip": CODEC_GZIP, "snappy": CODEC_SNAPPY, "lz4": CODEC_LZ4, "zstd": CODEC_ZSTD}
REASONS = {
    CODEC_CORRUPT: "the body is malformed or cut off, or bytes follow its end",
    CODEC_TOO_LARGE: "the body inflates beyond the limit of its size or ratio",
    CODEC_NO_MEMORY: "no memory is left for the codec",
    CODEC_UNKNOWN: "there is no such codec or level; codecs are " + ", ".join(NAMES),
    CODEC_UNAVAILABLE: "neither the C library nor cramjam is installed; install cramjam",
    CODEC_NO_FILE: "no file descriptor is free to open the codec's library; raise the limit of open files",
}


cdef int codec_id(codec) except -1:
    if isinstance(codec, int):
        return codec if codec >= 0 else 255
    try:
        return NAMES[codec]
    except KeyError:
        raise CodecError(CODEC_UNKNOWN, f"codec {codec!r}: {REASONS[CODEC_UNKNOWN]}") from None


cdef int refuse(int code) except -1:
    raise CodecError(code, REASONS[code])


cdef class Codec:
    """The contexts of the compression libraries for one thread. All bodies that the thread processes share them.

    Args:
        max_bytes: the limit of a body's inflated size.
        max_ratio: the limit of inflated size : stored size. It applies if the inflated size exceeds
            `ratio_floor_bytes`.
    """

    def __cinit__(self, *, max_bytes=None, max_ratio=None, ratio_floor_bytes=None):
        self.limits = default_inflate_limits()[0]
        if max_bytes is not None:
            self.limits.max_bytes = max_bytes
        if max_ratio is not None:
            self.limits.max_ratio = max_ratio
        if ratio_floor_bytes is not None:
            self.limits.ratio_floor_bytes = ratio_floor_bytes
        self.context = codec_context_new()
        if self.context == NULL:
            raise MemoryError

    def __dealloc__(self):
        codec_context_free(self.context)

    def inflate(self, codec, data):
        """Returns the inflated body of a batch as bytes.

        Raises:
            CodecError: the body is malformed or exceeds a limit, or the codec does not exist.
        """
        cdef Writer out
        cdef Py_buffer view
        cdef int number = codec_id(codec)
        cdef int status
        writer_init(&out, self.limits.max_bytes)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        with nogil:
            status = inflate_all(self.context, number, view.buf, view.len, &self.limits, &out)
        PyBuffer_Release(&view)
        return taken_bytes(&out, status)

    def chunks(self, codec, data):
        """Returns the inflated body as a list of bytes objects, in the chunks in which the validator gets it."""
        cdef Py_buffer view
        cdef const uint8_t *chunk = NULL
        cdef int64_t given
        cdef int number = codec_id(codec)
        found = []
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            given = inflate_begin(self.context, number, view.buf, view.len, &self.limits)
            if given < 0:
                refuse(<int> given)
            while True:
                given = inflate_next(self.context, &chunk)
                if given < 0:
                    refuse(<int> given)
                if given == 0:
                    return found
                found.append(PyBytes_FromStringAndSize(<const char *> chunk, given))
        finally:
            PyBuffer_Release(&view)

    def deflate(self, codec, data, level=None):
        """Returns the body compressed in Kafka's framing, as bytes. `level` is a value of Kafka's compression.*.level.

        Raises:
            CodecError: the codec or the level does not exist.
        """
        cdef Writer out
        cdef Py_buffer view
        cdef int number = codec_id(codec)
        cdef int asked = LEVEL_DEFAULT if level is None else level
        cdef int status
        writer_init(&out, MOST_BYTES)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        with nogil:
            status = deflate_all(self.context, number, asked, view.buf, view.len, &out)
        PyBuffer_Release(&view)
        return taken_bytes(&out, status)


cdef bytes taken_bytes(Writer *out, int status):
    try:
        if status != CODEC_OK:
            refuse(status)
        return PyBytes_FromStringAndSize(<const char *> out.data, out.size)
    finally:
        writer_free(out)


def needs_gil(codec):
    """Returns whether the C library of this codec is missing. In that case cramjam replaces the library and holds the
    GIL while it works."""
    return codec_needs_gil(codec_id(codec))


class CodecLibrary(NamedTuple):
    codec: str
    work: str
    name: str
    version: str | None
    path: str | None
    is_fallback: bool


cdef object version_in_name(path):
    """Returns the version in the name of a library's file: `1.1.9` for libsnappy.so.1.1.9."""
    found = re.search(r"\.so\.(\d[\d.]*)$", os.path.realpath(path))
    return found[1] if found else None


cdef object package_version(name):
    # importlib.metadata imports the package `email`, which takes a tenth of the time of a start. The version of a
    # package is rarely needed, so the import is here and not at the top of the module.
    from importlib.metadata import PackageNotFoundError, version as version_of_package

    try:
        return version_of_package(name)
    except PackageNotFoundError:
        return None


cdef object library_for(codec, int number, work):
    cdef const char *path = NULL
    cdef const char *version = NULL
    cdef bint inflates = work == "inflate"
    cdef const char *name
    with nogil:
        name = codec_library(number, inflates, &path, &version)
    if name == NULL:
        if number == CODEC_SNAPPY:
            return CodecLibrary(codec, work, "kafkacore", __version__, None, True)
        return CodecLibrary(codec, work, "cramjam", package_version("cramjam"), None, True)
    place = os.fsdecode(path) if path != NULL else None
    reported = version.decode() if version != NULL else version_in_name(place) if place else None
    is_fallback = number == CODEC_GZIP and inflates and name.decode() == "zlib"
    return CodecLibrary(codec, work, name.decode(), reported, place, is_fallback)


def codec_libraries():
    """Returns, for each codec, the library that inflates and the library that deflates. Opens all libraries."""
    return [
        library_for(codec, number, work)
        for codec, number in NAMES.items() if number != CODEC_NONE
        for work in ("inflate", "deflate")
    ]
