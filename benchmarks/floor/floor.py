"""Builds and runs floor.c, which measures the most that this machine can do, for comparison with the figures of
brokers.

    python benchmarks/floor/floor.py [--directory DIR] [--rounds N]

The directory decides the file system, so name the directory that the brokers write to. Pages that the machine touches
for the first time cost several times as much as recycled ones, most of all in a virtual machine that gets memory on
demand. So each round writes and then deletes the same amount of data, and the first round does not count.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("floor.c")
# The environment without a preloaded sanitizer: neither the compiler nor floor.c is built for one.
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
WORK = {"produce": (1_000_000, 1000), "fetch": (1 << 20, 4000), "echo": (200, 20_000)}


def build(into: Path) -> Path:
    program = into / "floor"
    subprocess.run(["cc", "-O2", "-pthread", "-o", str(program), str(SOURCE)], env=ENVIRONMENT, check=True)
    return program


def run(program: Path, work: str, directory: str) -> dict[str, float]:
    size_bytes, messages = WORK[work]
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        command = [str(program), work, scratch, str(size_bytes), str(messages)]
        figures: dict[str, float] = json.loads(
            subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True, text=True).stdout
        )
    figures.pop("checksum", None)
    return figures


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(figures[name] for figures in rounds) for name in rounds[0]}


def measure(directory: str, rounds: int) -> dict[str, dict[str, float]]:
    """Returns the median figures of each kind of work."""
    if not shutil.which("cc"):
        raise SystemExit("floor.py needs a C compiler: install gcc or clang, so that `cc` runs it")
    found: dict[str, list[dict[str, float]]] = {work: [] for work in WORK}
    with tempfile.TemporaryDirectory() as scratch:
        program = build(Path(scratch))
        for number in range(rounds + 1):
            for work, figures in found.items():
                one = run(program, work, directory)
                if number > 0:
                    figures.append(one)
    return {work: medians(figures) for work, figures in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="the throughput of one thread of plain C on this machine")
    parser.add_argument("--directory", default=".", help="on the file system that the brokers write to")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(json.dumps(measure(options.directory, options.rounds), indent=2))


if __name__ == "__main__":
    main()
