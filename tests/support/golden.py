"""Builds and runs the Java program of `ci/golden`: golden bytes and facts, written by Apache Kafka itself."""

import fcntl
import shutil
import subprocess

from processes import PEERS, ROOT, need

SOURCE = ROOT / "ci" / "golden"
BUILT = PEERS / "golden"
RELEASES = ("3.9", "4.3")
MAVEN_TIMEOUT_S = 300


def golden_file(release, program):
    """The output of `golden.<program>` with the jars of a release; runs the program again if its source changed."""
    need(shutil.which("java") and shutil.which("mvn"), "no Java: apt install openjdk-17-jdk-headless maven")
    directory = BUILT / release
    out = directory / f"{program}.json"
    newest = max(path.stat().st_mtime for path in SOURCE.rglob("*") if path.is_file())
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        if not out.exists() or out.stat().st_mtime < newest:
            _compile(release, directory, newest)
            classes = f"{directory / 'classes'}:{(directory / 'classpath').read_text()}"
            _run("java", "-cp", classes, f"golden.{program}", out)
    return out


def _compile(release, directory, newest):
    """Compiles all programs of a release once."""
    compiled = directory / ".compiled"
    if compiled.exists() and compiled.stat().st_mtime >= newest:
        return
    _run("mvn", "-q", "-B", "-f", SOURCE / "pom.xml", "-P", f"kafka-{release}", f"-Dgolden.directory={directory}",
         "compile", "dependency:build-classpath", f"-Dmdep.outputFile={directory / 'classpath'}")  # fmt: skip
    compiled.touch()


def _run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{command[0]} failed:\n{done.stdout}\n{done.stderr}"
