"""Reads string literals of compiled Java classes from Apache Kafka's jars. The literals contain the names that Apache
Kafka uses, and reading them needs no JVM."""

import struct
import zipfile

_UTF8, _LONG, _DOUBLE, _STRING = 1, 5, 6, 8
# The size of each constant after its tag byte (JVM specification, 4.4). The size of text is variable, so it is not
# listed here.
_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
_POOL_AT = 8


def string_literals(jar, name):
    """Returns the set of string literals of the class `name` (with dots) in `jar`."""
    with zipfile.ZipFile(jar) as archive:
        code = archive.read(name.replace(".", "/") + ".class")
    (count,) = struct.unpack_from(">H", code, _POOL_AT)
    texts, literals = {}, []
    at, index = _POOL_AT + 2, 1
    while index < count:
        tag = code[at]
        if tag == _UTF8:
            (size,) = struct.unpack_from(">H", code, at + 1)
            texts[index] = code[at + 3 : at + 3 + size].decode("utf-8", "replace")
            at += 3 + size
        else:
            if tag == _STRING:
                literals += struct.unpack_from(">H", code, at + 1)
            at += 1 + _SIZES[tag]
        index += 2 if tag in (_LONG, _DOUBLE) else 1
    return {texts[each] for each in literals}
