"""Runs a group member in a process of its own, so that tests can kill it. Prints the member's partitions whenever they
change.

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
