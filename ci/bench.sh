#!/usr/bin/env bash
# Micro paths by pytest-benchmark, then whole processes beside their peers; results land in build/bench.
source "$(dirname "$0")/common.sh"

ci/build.sh test,bench
ci/peers.sh
mkdir -p build/bench
.venv/bin/python -m pytest benchmarks/micro --benchmark-only --benchmark-json=build/bench/micro.json -q
.venv/bin/python -m benchmarks.floor --json build/bench/floor.json
.venv/bin/python -m benchmarks.peers --out build/bench "$@"
