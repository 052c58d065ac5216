"""Builds the extensions. Every .pyx below src/kafkacore/_fast is an extension.

Environment:
  KAFKACORE_SANITIZE=address,undefined | thread   compile and link under those sanitizers
  KAFKACORE_COVERAGE=1                            report the edges that run (to ci/fuzz/coverage.c, preloaded)
  KAFKACORE_DEBUG=1                               assertions (base/assertions.pxd), -O1 -g; sanitizers imply it
  KAFKACORE_PLANTED=1                             bugs that the simulator can plant (base/planted.pxd)
  KAFKACORE_ONLY=record.batch,base.crc32c         build only these extensions (during work on one of them)
"""

import os
import subprocess
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

FAST = Path("src/kafkacore/_fast")
# Tests of debug builds use this file to damage data. No release build contains it, and so no wheel does.
PLANTED_FAULTS = Path("tests/support/planted_faults.pyx")
SANITIZE = os.environ.get("KAFKACORE_SANITIZE", "")
DEBUG = os.environ.get("KAFKACORE_DEBUG", "") == "1" or bool(SANITIZE)
PLANTED = os.environ.get("KAFKACORE_PLANTED", "") == "1"
ONLY = {name for name in os.environ.get("KAFKACORE_ONLY", "").split(",") if name}

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "embedsignature": True,
    "freethreading_compatible": False,
}


def compile_flags() -> list[str]:
    # The codecs rely on unsigned overflow, which C defines. The cursors do not obey strict aliasing.
    flags = ["-std=gnu11", "-fno-strict-aliasing", "-fvisibility=hidden", "-Wno-unused-function", "-pthread"]
    # clang and gcc 14 refuse such code, so every build refuses it.
    flags += ["-Werror=incompatible-pointer-types", "-Werror=int-conversion", "-Werror=implicit-function-declaration"]
    # Release builds do not use the texts of assertions.
    flags += ["-Wno-unused-const-variable"]
    flags += ["-O1", "-g", "-fno-omit-frame-pointer", "-DKAFKACORE_DEBUG=1"] if DEBUG else ["-O2", "-g1", "-DNDEBUG"]
    flags += ["-DKAFKACORE_PLANTED=1"] if PLANTED else []
    return flags + sanitizer_flags()


def sanitizer_flags() -> list[str]:
    coverage = os.environ.get("KAFKACORE_COVERAGE", "") == "1"
    flags = ["-fsanitize-coverage=trace-pc,trace-cmp"] if coverage else []
    return flags + ([f"-fsanitize={SANITIZE}"] if SANITIZE else [])


def name(source: Path) -> str:
    """Returns the module name, such as `record.batch` for src/kafkacore/_fast/record/batch.pyx."""
    if source == PLANTED_FAULTS:
        return "hot.planted_faults"
    return ".".join(source.relative_to(FAST).with_suffix("").parts)


def sources() -> list[Path]:
    planted = [PLANTED_FAULTS] if DEBUG and PLANTED_FAULTS.exists() else []
    return sorted(FAST.rglob("*.pyx")) + planted


def extensions() -> list[Extension]:
    return [
        Extension(
            f"kafkacore._fast.{name(source)}",
            [str(source)],
            extra_compile_args=compile_flags(),
            extra_link_args=["-pthread", *sanitizer_flags()],
            libraries=["dl"],
        )
        for source in sources()
        if not ONLY or name(source) in ONLY
    ]


# Structs, error codes and API keys are generated from Kafka's tables. The generated files must exist before Cython
# looks for them.
subprocess.run([sys.executable, "ci/native_tables.py"], check=True)

setup(
    ext_modules=cythonize(
        extensions(),
        compiler_directives=DIRECTIVES,
        include_path=["src"],
        build_dir="build/cython",
        emit_linenums=DEBUG,  # so that an assertion, a sanitizer and a debugger show the line in the .pyx
        nthreads=os.cpu_count() or 1,
    )
)
