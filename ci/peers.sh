#!/usr/bin/env bash
# Installs the real peers under .peers: Apache Kafka's jars with Maven, kafkajs, and the oldest librdkafka that is tested.
# Without Java or Maven, the tests that need them are skipped. With CI=true, this is a failure.
source "$(dirname "$0")/common.sh"

kafkajs=.peers/kafkajs
if ! command -v npm >/dev/null; then
    how="the example for kafkajs needs Node 20: apt install nodejs npm"
    [ "${CI:-}" = true ] && die "$how"
    say "$how; its test will be skipped"
elif [ ! -e "$kafkajs/.complete" ] || [ examples/kafkajs/package.json -nt "$kafkajs/.complete" ]; then
    say "installing kafkajs"
    mkdir -p "$kafkajs"
    cp examples/kafkajs/package.json "$kafkajs"
    npm install --prefix "$kafkajs" --silent --no-audit --no-fund --no-package-lock
    touch "$kafkajs/.complete"
fi

releases=(4.3.1 3.9.2)
missing=""
command -v java >/dev/null || missing="java"
command -v mvn >/dev/null || missing="$missing mvn"
if [ -n "$missing" ]; then
    how="Apache Kafka's clients and tools need Java 17 and Maven (missing: $missing): apt install openjdk-17-jdk-headless maven"
    [ "${CI:-}" = true ] && die "$how"
    say "$how; their tests will be skipped"
    exit 0
fi

for release in "${releases[@]}"; do
    jars=".peers/kafka-$release"
    # A directory without the marker .complete is an interrupted download, so the script fetches it again.
    if [ ! -e "$jars/.complete" ] || [ ci/peers/pom.xml -nt "$jars/.complete" ]; then
        say "fetching Apache Kafka $release"
        rm -rf "$jars"
        mvn -q -B -f ci/peers/pom.xml -P "kafka-${release%.*}" dependency:copy-dependencies \
            -DincludeScope=runtime -DoutputDirectory="$PWD/$jars"
        touch "$jars/.complete"
    fi
done

classes=.peers/java
if [ ! -e "$classes/.complete" ] || [ -n "$(find ci/peers/java -newer "$classes/.complete" -print -quit)" ]; then
    say "compiling the Java client and the tools' runner"
    rm -rf "$classes"
    mkdir -p "$classes"
    # The classes are compiled against the older release, so that they work with both releases.
    javac -proc:none -nowarn -d "$classes" -cp ".peers/kafka-3.9.2/*" $(find ci/peers/java -name '*.java')
    touch "$classes/.complete"
fi

# With a class archive, a broker or tool of Apache Kafka starts in half the time.
for release in "${releases[@]}"; do
    archive=".peers/kafka-$release.jsa"
    if [ -x .venv/bin/python ] && [ ".peers/kafka-$release/.complete" -nt "$archive" ]; then
        say "archiving the classes of Apache Kafka $release"
        PYTHONPATH=tests/support .venv/bin/python ci/peers/archive.py "$release" >build/archive.log 2>&1 ||
            say "this Java writes no class archive (see build/archive.log): Apache Kafka starts without an archive, more slowly"
    fi
done

older=.peers/venv-confluent-2.6
if [ ! -e "$older/.complete" ]; then
    say "installing confluent-kafka 2.6"
    "${PYTHON:-python3}" -m venv "$older"
    "$older/bin/python" -m pip install -q --disable-pip-version-check 'confluent-kafka==2.6.*'
    touch "$older/.complete"
fi
