"""The check of clients' regular expressions."""

import sys
import time

import pytest

from kafkacore.config.patterns import MOST_CHECKED, syntax_error


@pytest.mark.parametrize(
    "pattern", ["", "a.*", r"\pL+\p{Lu}\P{^Greek}", "(?<name>a)", "(?P<name>a)", "(?<=a)b", "a{1,3}?"]
)
def test_pattern_of_java_or_re2_is_accepted(pattern):
    assert syntax_error(pattern) is None


@pytest.mark.parametrize("pattern", ["(", "[", "*", "a{99999999999999}", "(?<name>a"])
def test_pattern_with_a_syntax_error_is_refused(pattern):
    assert syntax_error(pattern)


def test_pattern_that_is_nested_too_deeply_is_refused():
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(400)
    try:
        assert syntax_error("(" * 450 + ")" * 450) == "the parentheses are nested too deeply"
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("unit", ["[\x01-\uffff]", "(a|b)", "(?<=a)", "a{1,2}"])
@pytest.mark.parametrize("size", [MOST_CHECKED, 32_767])
def test_check_is_fast_whatever_the_pattern_is(unit, size):
    pattern = "(?i)" + unit * ((size - 4) // len(unit))
    began_s = time.thread_time()
    syntax_error(pattern)
    assert time.thread_time() - began_s < 0.03  # `re.compile` takes from 0.4 s to minutes
