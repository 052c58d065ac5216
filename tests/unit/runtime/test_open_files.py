"""The limit of open files. A node raises it as far as it may, and logs a warning if its logs could exceed the limit."""

from __future__ import annotations

import errno
import logging
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.world.environment import Environment
from kafkacore.runtime import open_files
from kafkacore.storage import clean_shutdown
from kafkacore.storage.log_manager import LogManager


def test_soft_limit_becomes_the_hard_one() -> None:
    script = (
        "import resource\n"
        "from kafkacore.runtime import open_files\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))\n"
        "open_files.raise_limit()\n"
        "assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=20)


def test_warning_says_that_there_are_more_logs_than_open_files(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (5000, 9000))
    open_files.warn_of(4000)
    assert not caplog.messages
    open_files.warn_of(4001)
    assert caplog.messages == [f"there are 4001 logs, but the limit of open files is 5000: {open_files.ADVICE}"]
    caplog.clear()
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY,) * 2)
    open_files.warn_of(1 << 40)
    assert not caplog.messages


def test_start_warns_before_the_first_append_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(101):
        (tmp_path / f"t-{index}").mkdir()
    clean_shutdown.write(str(tmp_path), 1)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1050, 1050))
    manager = LogManager(Environment(), [str(tmp_path)], lambda topic: LogSettings())
    manager.load()
    assert [line for line in caplog.messages if "open files" in line] == [
        f"there are 101 logs, but the limit of open files is 1050: {open_files.ADVICE}"
    ]
    manager.close()


def test_step_is_repeated_when_no_descriptor_is_free_and_not_after_other_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(open_files, "WAIT_S", 0)
    errors = [errno.EMFILE, errno.ENFILE]

    def step(value: int) -> int:
        if errors:
            raise OSError(errors.pop(), "no")
        return value

    assert (open_files.finish(step, 7), errors) == (7, [])
    errors += [errno.EMFILE, errno.EIO]
    with pytest.raises(OSError, match="no") as refused:
        open_files.finish(step, 7)
    assert (refused.value.errno, errors) == (errno.EIO, [errno.EMFILE])
    monkeypatch.setattr(open_files, "WAIT_ROUNDS", 2)
    errors += [errno.EMFILE] * 3
    with pytest.raises(OSError, match="no"):
        open_files.finish(step, 7)
    assert len(errors) == 1


def test_directory_that_met_the_limit_says_what_to_do(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = LogManager(Environment(), [str(tmp_path)], lambda topic: LogSettings())
    manager.native_directories[0].fail(errno.EMFILE)
    manager.check_directories()
    (told,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert told.getMessage() == (
        f"the log directory {tmp_path} and its logs (0) are offline: Too many open files; {open_files.ADVICE}"
    )
    manager.close()
