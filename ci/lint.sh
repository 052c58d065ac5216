#!/usr/bin/env bash
# Runs every check, even if an earlier one has failed. The configuration is in pyproject.toml.
source "$(dirname "$0")/common.sh"

failed=()
check() {
    local name="$1"
    shift
    "$@" || failed+=("$name")
}

check ruff .venv/bin/ruff check src tests ci benchmarks setup.py
check format .venv/bin/ruff format --check --quiet src tests ci benchmarks setup.py
check mypy .venv/bin/mypy
# cython-lint finds pycodestyle through the PATH.
check cython-lint env PATH="$PWD/.venv/bin:$PATH" cython-lint src/kafkacore
check contracts .venv/bin/python ci/contracts.py
check prose .venv/bin/python ci/prose.py src tests docs README.md CONTRIBUTING.md CHANGELOG.md ci benchmarks examples setup.py
if command -v shellcheck >/dev/null; then check shellcheck shellcheck -x ci/*.sh .ci/run; fi

[ ${#failed[@]} -eq 0 ] || die "not clean: ${failed[*]}"
say "clean"
