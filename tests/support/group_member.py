"""A group member in its own process, which tests kill. Prints its partitions whenever they change.

Usage: python group_member.py BOOTSTRAP GROUP TOPIC SESSION_MS
"""

import sys
from types import SimpleNamespace

from group_members import ConfluentMember


def main(bootstrap, group, topic, session_ms):
    member = ConfluentMember(SimpleNamespace(bootstrap=bootstrap), group, topic, session_ms=int(session_ms))
    before = None
    while True:
        member.poll()
        if member.partitions() != before:
            before = member.partitions()
            print(sorted(before), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
