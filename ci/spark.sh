#!/usr/bin/env bash
# Installs the packages for the tests of kafkacore.spark: PySpark in .venv, the oldest supported PySpark in a separate
# environment, the packages of Spark Connect's client, and Spark's own Kafka connector for comparison. Each PySpark has
# 480 MB. `make build` does not need this script.
# Without Java, the tests of Spark are skipped. With CI=true, this is a failure.
source "$(dirname "$0")/common.sh"

missing=""
command -v java >/dev/null || missing="java"
command -v mvn >/dev/null || missing="$missing mvn"
if [ -n "$missing" ]; then
    how="Spark needs Java 17, and its own Kafka connector comes with Maven (missing: $missing): apt install openjdk-17-jdk-headless maven"
    [ "${CI:-}" = true ] && die "$how"
    say "$how; the tests of Spark will be skipped"
    exit 0
fi

if ! .venv/bin/python -c 'import pyspark, pyarrow' 2>/dev/null; then
    say "installing PySpark and PyArrow, 480 MB"
    ci/build.sh test,spark
fi

oldest=4.0.0
older=.peers/venv-spark-$oldest
if [ ! -e "$older/.complete" ]; then
    say "installing PySpark $oldest, 480 MB"
    .venv/bin/python -m venv "$older"
    "$older/bin/python" -m pip install -q --disable-pip-version-check "pyspark==$oldest" pyarrow 'pytest>=8' pytest-timeout hypothesis
    touch "$older/.complete"
fi
# kafkacore and its dependencies come from .venv, after the packages of this environment.
echo "$PWD/.venv/lib/$(cd .venv/lib && echo python3*)/site-packages" >"$older/lib/$(cd "$older/lib" && echo python3*)/site-packages/kafkacore.pth"
echo "$PWD/src" >>"$older/lib/$(cd "$older/lib" && echo python3*)/site-packages/kafkacore.pth"

# The packages of Spark Connect's client (pyspark[connect]) stay outside .venv. So the other tests run without pandas, as
# kafkacore[spark] does.
connect=.peers/spark-connect-packages
if [ ! -e "$connect/.complete" ]; then
    say "installing the packages of Spark Connect's client, 200 MB"
    rm -rf "$connect"
    .venv/bin/python -m pip install -q --disable-pip-version-check --target "$connect" 'grpcio>=1.76' \
        'grpcio-status>=1.76' 'googleapis-common-protos>=1.71' 'zstandard>=0.25' 'pandas>=2.2,<3'
    touch "$connect/.complete"
fi

for release in 4.0.0 4.3.0; do
    jars=.peers/spark-connector-$release
    if [ ! -e "$jars/.complete" ] || [ ci/peers/spark/pom.xml -nt "$jars/.complete" ]; then
        say "fetching Spark's Kafka connector for PySpark $release"
        rm -rf "$jars"
        mvn -q -B -f ci/peers/spark/pom.xml -P "spark-$release" dependency:copy-dependencies \
            -DincludeScope=runtime -DoutputDirectory="$PWD/$jars"
        touch "$jars/.complete"
    fi
done
