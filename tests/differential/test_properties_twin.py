"""Our reader and our writer of properties compared with java.util.Properties. The files consist of characters that have
a special meaning in properties.
"""

import random
import shutil
import subprocess

import pytest

from kafkacore.config import ConfigError
from kafkacore.config.properties import parse, store
from processes import ROOT, need
from seeds import SEED

FILES = 1500
PIECES = [
    "a", "b.c", "key", "1", "x y", " ", "  ", "\t", "\f", "\n", "\n\n", "\r", "\r\n", "=", ":", "==", " = ", "#", "!",
    "# x", "\\", "\\\\", "\\\n", "\\\r\n", "\\\r", "\\ ", "\\=", "\\:", "\\#", "\\n", "\\t", "\\f", "\\q",
    "\\u0041", "\\u00e9", "\\uD83D\\uDE00", "\\u12", "\\u", "\\U0041", ",", "/tmp", "\v", "\x7f",
]  # fmt: skip
JAVA_TIMEOUT_S = 60


@pytest.fixture(scope="module")
def java():
    need(shutil.which("java"), "no java: apt install openjdk-17-jdk-headless")

    def read(files):
        asked = "".join(f"{file.hex()}\n" for file in files)
        command = ["java", str(ROOT / "ci" / "config" / "ReadProperties.java")]
        answer = subprocess.run(
            command, input=asked, check=True, capture_output=True, text=True, timeout=JAVA_TIMEOUT_S
        )
        return answer.stdout.splitlines()

    return read


def shown(properties):
    """Returns the properties in the output format of the Java program."""
    pairs = sorted((key.encode("utf-16-be"), value.encode("utf-16-be")) for key, value in properties.items())
    return " ".join(f"{key.hex()}={value.hex()}" for key, value in pairs)


def ours(file):
    try:
        return shown(parse(file))
    except ConfigError:
        return "malformed"


def test_reader_agrees_with_java(java):
    rng = random.Random(SEED)
    files = ["".join(rng.choices(PIECES, k=rng.randrange(1, 25))).encode() for _ in range(FILES)]
    for file, theirs in zip(files, java(files), strict=True):
        assert ours(file) == theirs, f"KAFKACORE_SEED={SEED}: {file!r}"


def test_java_reads_the_files_of_our_writer(java):
    rng = random.Random(7)
    maps = [
        {"".join(rng.choices(PIECES, k=3)): "".join(rng.choices([*PIECES, "é", "中", "😀"], k=6)) for _ in range(4)}
        for _ in range(FILES // 10)
    ]
    for properties, theirs in zip(maps, java([store(properties, ("a comment",)) for properties in maps]), strict=True):
        assert shown(properties) == theirs
