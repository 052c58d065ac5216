"""Builds and runs the Java programs of `ci/golden`, in which Apache Kafka itself writes golden bytes and facts."""

import fcntl
import shutil
import subprocess

from processes import PEERS, ROOT, need

SOURCE = ROOT / "ci" / "golden"
BUILT = PEERS / "golden"
RELEASES = ("3.9", "4.3")
MAVEN_TIMEOUT_S = 300


def golden_file(release, program):
    """Returns the output of `golden.<program>`, run with the jars of a release. The output is cached until the
    program's source changes."""
    need(shutil.which("java") and shutil.which("mvn"), "no Java: apt install openjdk-17-jdk-headless maven")
    directory = BUILT / release
    out = directory / f"{program}.json"
    newest = max(path.stat().st_mtime for path in SOURCE.rglob("*") if path.is_file())
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may compile at the same time
        if not out.exists() or out.stat().st_mtime < newest:
            _compile(release, directory, newest)
            classes = f"{directory / 'classes'}:{(directory / 'classpath').read_text()}"
            _run("java", "-cp", classes, f"golden.{program}", out)
    return out


def _compile(release, directory, newest):
    """Compiles all programs for a release, unless they are up to date."""
    compiled = directory / ".compiled"
    if compiled.exists() and compiled.stat().st_mtime >= newest:
        return
    _run("mvn", "-q", "-B", "-f", SOURCE / "pom.xml", "-P", f"kafka-{release}", f"-Dgolden.directory={directory}",
         "compile", "dependency:build-classpath", f"-Dmdep.outputFile={directory / 'classpath'}")  # fmt: skip
    compiled.touch()


def _run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{command[0]} failed:\n{done.stdout}\n{done.stderr}"
