"""Runs the programs in aiokafka's README, with another address, because its source distributions contain no tests."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

README = Path(__file__).with_name("README.rst")
BOOTSTRAP = os.environ["KAFKA_URI"].removeprefix("kafka://")
TRIES, TRY_S = 30, 10


def programs():
    """Returns the code blocks that use a broker, by the class that they show."""
    text = README.read_text(encoding="utf-8")
    blocks = re.findall(r"^\.\. code-block:: python\n\n((?:(?: {4}.*)?\n)+)", text, re.MULTILINE)
    code = [textwrap.dedent(block).replace("localhost:9092", BOOTSTRAP) for block in blocks]
    return {re.search(r"import (AIOKafka\w+)", block)[1]: block for block in code}


def test_readme_consumer_receives_what_the_readme_producer_sends():
    found = programs()
    assert set(found) == {"AIOKafkaProducer", "AIOKafkaConsumer"}
    assert all(BOOTSTRAP in code for code in found.values())
    command = [sys.executable, "-u", "-c"]
    with subprocess.Popen([*command, found["AIOKafkaConsumer"]], stdout=subprocess.PIPE) as consumer:
        try:
            os.set_blocking(consumer.stdout.fileno(), False)
            # The consumer begins at the end of the log when it joins, so it misses records that were produced earlier.
            output = b""
            for _ in range(TRIES):
                subprocess.run([*command, found["AIOKafkaProducer"]], check=True, timeout=TRY_S)
                assert consumer.poll() is None, "the consumer has ended"
                output += consumer.stdout.read() or b""
                if b"b'Super message'" in output:
                    break
        finally:
            consumer.kill()
    assert re.search(rb"consumed:  my_topic 0 \d+ None b'Super message' \d+", output)
