# The two commands of the README come first. Each target makes what it needs: .venv, the extensions, the real peers.
.PHONY: demo test build bench lint sanitize fuzz simulate wheel peers peer-tests

PYTHON := .venv/bin/python

demo: ## a node, a cluster, real clients, kill -9, nothing lost
	@ci/build.sh test
	@.venv/bin/kafkacore demo

test: ## every test, also against Apache Kafka's own clients and tools (Java 17, Maven)
	@ci/build.sh test
	@ci/peers.sh
	@$(PYTHON) -m pytest -n 2 --dist loadfile --durations=15

build: ## .venv, the extensions in place, and .venv/bin/kafkacore
	@ci/build.sh test

bench: ## micro benchmarks, the floor of this machine, and the table beside the peers
	@ci/bench.sh

lint: ## ruff, mypy, cython-lint and the import contracts
	@ci/build.sh test,dev
	@ci/lint.sh

sanitize: ## the native tests with assertions: a debug build, AddressSanitizer with UBSan, ThreadSanitizer
	@ci/sanitize.sh

fuzz: ## every fuzzer, guided by coverage and under each sanitizer: an hour and a half; ci/fuzz.sh all SECONDS sets another budget
	@ci/fuzz.sh all

simulate: ## clusters from 2,000 new seeds on every core, with the coverage reached; SEEDS=N sets another number
	@ci/build.sh test
	@.venv/bin/kafkacore simulate --runs $(or $(SEEDS),2000)

wheel: ## the source distribution and, from it, a manylinux wheel for each installed CPython, in dist/
	@ci/wheel.sh

peers: ## Apache Kafka 4.3 and 3.9 and an older librdkafka, under .peers
	@ci/peers.sh

peer-tests: ## the tests in the source distributions of kafka-python and aiokafka, against a node; explains each failure
	@ci/peer-tests.sh
