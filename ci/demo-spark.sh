#!/usr/bin/env bash
# Shows the whole pipeline on Spark. Installs PySpark, which is large. Spark needs Java.
# Without Java, the script shows nothing. With CI=true, this is a failure.
source "$(dirname "$0")/common.sh"

if ! command -v java >/dev/null; then
    how="Spark needs Java 17: apt install openjdk-17-jdk-headless"
    [ "${CI:-}" = true ] && die "$how"
    say "$how; nothing is shown"
    exit 0
fi
[ -x .venv/bin/python ] && .venv/bin/python -c 'import pyspark, pyarrow, matplotlib' 2>/dev/null ||
    say "the first run installs PySpark and PyArrow: 480 MB"
ci/build.sh test,spark
exec .venv/bin/kafkacore spark demo --output build/spark-demo "$@"
