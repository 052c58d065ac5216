"""Writes an archive of the classes that a broker of one release of Apache Kafka loads at its start.

PYTHONPATH=tests/support python ci/peers/archive.py 4.3.1
"""

import os
import sys
import tempfile

from brokers import APACHE, ApacheKafka, archive

ARCHIVE_TIMEOUT_S = 120


class Archived(ApacheKafka):
    """A broker whose process writes the archive when it ends."""

    def __init__(self, name, directory, made):
        self.made = made
        super().__init__(name, directory)

    def command_line(self):
        options = {f"-XX:SharedArchiveFile={archive(self.release)}": f"-XX:ArchiveClassesAtExit={self.made}"}
        return [options.get(word, word) for word in super().command_line()]


def main(release):
    [name] = [name for name, known in APACHE.items() if known == release]
    archive(release).unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        # The archive gets its final name only when it is complete.
        made = archive(release).with_suffix(".part")
        made.unlink(missing_ok=True)
        broker = Archived(name, directory, made)
        broker.child.terminate(ARCHIVE_TIMEOUT_S)
        if not made.exists():
            sys.exit(broker.child.tail())
        os.replace(made, archive(release))


if __name__ == "__main__":
    main(*sys.argv[1:])
