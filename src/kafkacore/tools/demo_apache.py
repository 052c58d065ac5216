"""The third part of the demo: a broker of Apache Kafka takes the place of a kafkacore broker, on the same directory."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from kafkacore.tools.demo_parts import PATIENCE_S, DemoFailedError

ROOT: Final = Path(__file__).parents[3]  # the root of a checkout
LEAST_RELEASE: Final = (4, 3)  # older releases do not know the metadata.version of a new kafkacore cluster
START_LIMIT_S: Final = 90.0  # the start takes five seconds on a quiet machine
LOG_LINES: Final = 20
LISTENERS: Final = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
}
MISSING: Final = (
    "not shown here: a broker of Apache Kafka takes the place of one of these brokers. This needs Java 17 and "
    "Apache Kafka 4.3: "
    "`make peers` fetches the jars, or KAFKA_HOME names an installation"
)


class Installation(NamedTuple):
    version: str
    jars: Path


def find() -> Installation | None:
    """Returns the newest Apache Kafka that can join the demo's cluster. Returns None if no such release or no Java is
    installed."""
    if shutil.which("java") is None:
        return None
    found = [
        (tuple(map(int, version.split("."))), Installation(version, jars))
        for jars in _places()
        for name in jars.glob("kafka-clients-*.jar")
        if (version := re.sub(r"kafka-clients-(.*)\.jar", r"\1", name.name)) and re.fullmatch(r"\d+(\.\d+)+", version)
    ]
    usable = [each for each in found if each[0] >= LEAST_RELEASE]
    return max(usable)[1] if usable else None


def _places() -> Iterator[Path]:
    if home := os.environ.get("KAFKA_HOME"):
        yield Path(home) / "libs"
    # The class archive beside the jars refers to the jars by their real paths.
    yield from (path.resolve() for path in (ROOT / ".peers").glob("kafka-*") if path.is_dir())


class ApacheBroker:
    """A process of Apache Kafka that uses an already formatted directory."""

    def __init__(self, installed: Installation, directory: Path, settings: Mapping[str, str]) -> None:
        self.installed = installed
        self._properties = directory.with_name(f"{directory.name}.properties")
        self._log = directory.with_name(f"{directory.name}.log")
        lines = {**LISTENERS, **settings, "log.dirs": str(directory)}
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        jars = self.installed.jars
        # With the class archive that `make peers` writes, the process starts in half the time.
        command = [
            "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-XX:SharedArchiveFile={jars}.jsa",
            "-Xshare:auto", "-Xlog:disable", "-cp", _class_path(jars), "kafka.Kafka", str(self._properties),
        ]  # fmt: skip
        if shutil.which("setpriv") is not None:  # so that the process ends with the demo
            command = ["setpriv", "--pdeathsig", "KILL", "--", *command]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def lives(self) -> bool:
        """Returns True if the process is running. If the process has ended, raises DemoFailedError with the last lines
        of its log."""
        assert self._process is not None
        if self._process.poll() is not None:
            end = "\n".join(self._log.read_text(errors="replace").splitlines()[-LOG_LINES:])
            raise DemoFailedError(f"Apache Kafka ended with exit code {self._process.returncode}:\n{end}")
        return True

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE_S)


def _class_path(jars: Path) -> str:
    """Returns the class path in the form that the class archive expects: the jars, and in a checkout also the demo's
    log configuration and helpers."""
    if not jars.with_name(f"{jars.name}.jsa").exists():
        return f"{jars}/*"
    return f"{jars}/*:{ROOT / 'ci' / 'peers'}:{ROOT / '.peers' / 'java'}"
