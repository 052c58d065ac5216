#!/usr/bin/env bash
# Runs the tests in the source distributions of client libraries against a kafkacore node. ci/peer-tests/suites.toml lists
# the suites and explains every expected failure. Takes five minutes and needs a package index.
#   usage: ci/peer-tests.sh [PROJECT[==VERSION] ...]
source "$(dirname "$0")/common.sh"

ci/build.sh test
exec .venv/bin/python ci/peer-tests/run.py "$@"
