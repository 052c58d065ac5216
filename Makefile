# The first targets are the commands that README.md shows first. Each target makes whatever it needs: .venv, the
# extensions, the other brokers.
.PHONY: demo demo-spark test build bench lint sanitize fuzz simulate wheel peers peer-tests

PYTHON := .venv/bin/python

demo: ## shows with real clients that a node and a cluster lose no record after kill -9
	@ci/build.sh test
	@.venv/bin/kafkacore demo

demo-spark: ## counts lines in a query, kills a broker, audits the counts, writes a report (Java 17, PySpark: 480 MB)
	@ci/demo-spark.sh

test: ## runs every test, also those with Apache Kafka's clients and tools (Java 17, Maven) and PySpark (2 x 480 MB)
	@ci/build.sh test
	@ci/peers.sh
	@ci/spark.sh
	@$(PYTHON) -m pytest -n 2 --dist loadfile --durations=15

build: ## makes .venv, the extensions in place, and .venv/bin/kafkacore
	@ci/build.sh test

bench: ## runs the micro benchmarks, benchmarks/floor, and the comparison with other brokers
	@ci/bench.sh

lint: ## runs ruff, mypy, cython-lint and the check of the import contracts
	@ci/build.sh test,dev
	@ci/lint.sh

sanitize: ## runs the native tests in three builds: debug with assertions, AddressSanitizer with UBSan, ThreadSanitizer
	@ci/sanitize.sh

fuzz: ## runs all fuzzers, by coverage and under each sanitizer, for 1.5 hours (ci/fuzz.sh all SECONDS changes that)
	@ci/fuzz.sh all

simulate: ## simulates 2,000 quorums and 100 whole clusters, half of them in ZooKeeper mode; SEEDS=N replaces 2,000
	@ci/build.sh test
	@.venv/bin/kafkacore simulate --nodes quorum:3+1 --runs $(or $(SEEDS),2000)
	@.venv/bin/kafkacore simulate --runs $$(($(or $(SEEDS),2000) / 40 + 2))
	@.venv/bin/kafkacore simulate --nodes zookeeper:3+3 --runs $$(($(or $(SEEDS),2000) / 40 + 2))

wheel: ## builds in dist/ the source distribution, and from it a manylinux wheel for each installed CPython
	@ci/wheel.sh

peers: ## installs Apache Kafka 4.3 and 3.9 and an older librdkafka under .peers
	@ci/peers.sh

peer-tests: ## runs the tests of kafka-python and aiokafka's README against a node, and explains each failure
	@ci/peer-tests.sh
