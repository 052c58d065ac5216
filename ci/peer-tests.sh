#!/usr/bin/env bash
# Runs the tests from the source distributions of client libraries against a node of ours. ci/peer-tests/suites.toml lists
# them and explains every failure. Takes five minutes and needs a package index.
#   usage: ci/peer-tests.sh [PROJECT[==VERSION] ...]
source "$(dirname "$0")/common.sh"

ci/build.sh test
exec .venv/bin/python ci/peer-tests/run.py "$@"
