#!/usr/bin/env bash
# Runs the tests that failed in the last `make test` once more, alone on the machine, and names those that pass now.
# A person must look at every named test: either the test or the code depends on time. If more than three tests failed,
# the script does not run them again, because so many failures have a common cause.
source "$(dirname "$0")/common.sh"

failures=.pytest_cache/v/cache/lastfailed
[ -s "$failures" ] || die "make test failed before it ran a test"
failed="$(.venv/bin/python -c 'import json, sys; print(*json.load(open(sys.argv[1])), sep="\n")' "$failures")"
count="$(grep -c . <<<"$failed" || true)"
[ "$count" -gt 0 ] || die "make test failed, but no test did"
[ "$count" -le 3 ] || die "$count tests failed"
say "$count of the tests failed; running again, alone:"
say "$failed"
.venv/bin/python -m pytest --last-failed --last-failed-no-failures=none
say "UNSTABLE: passed only alone: ${failed//$'\n'/, }"
