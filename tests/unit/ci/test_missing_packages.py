"""A test file that needs a missing package is skipped on a developer's machine, and fails with CI=true."""

import os
import subprocess
import sys

import pytest

from processes import ROOT

FILE = "tests/unit/columns/test_record_encoder.py"
ADVICE = "no PyArrow: pip install kafkacore[spark], or ci/spark.sh"


@pytest.fixture
def run_without_pyarrow(tmp_path):
    (tmp_path / "pyarrow.py").write_text("raise ModuleNotFoundError(\"No module named 'pyarrow'\", name='pyarrow')\n")

    def run(**environment):
        inherited = {name: value for name, value in os.environ.items() if name != "CI" and "PYTEST" not in name}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", FILE], cwd=ROOT, capture_output=True, text=True,
            check=False, env={**inherited, "PYTHONPATH": str(tmp_path), **environment},
        )  # fmt: skip
        return done.returncode, done.stdout

    return run


def test_file_is_skipped_with_advice_when_a_person_runs_it(run_without_pyarrow):
    code, output = run_without_pyarrow()
    assert code == pytest.ExitCode.NO_TESTS_COLLECTED
    assert f"SKIPPED [1] {FILE}" in output
    assert ADVICE in output


def test_file_fails_with_advice_when_ci_runs_it(run_without_pyarrow):
    code, output = run_without_pyarrow(CI="true")
    assert code == pytest.ExitCode.INTERRUPTED  # pytest failed to collect the file
    assert f"ERROR {FILE}" in output
    assert ADVICE in output
