#!/usr/bin/env bash
# The tests that ship in the source distributions of client libraries, against a node of ours: ci/peer-tests/suites.toml
# names them and explains every failure. Five minutes; needs a package index.   usage: ci/peer-tests.sh [PROJECT[==VERSION] ...]
source "$(dirname "$0")/common.sh"

ci/build.sh test
exec .venv/bin/python ci/peer-tests/run.py "$@"
