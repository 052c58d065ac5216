#!/usr/bin/env bash
# Runs the tests that reach native code with assertions on: in a debug build, under AddressSanitizer with UBSan, and under
# ThreadSanitizer. Each build is a copy of the tree below build/sanitize. On two cores the three take 5, 15 and 25 minutes.
# `planted` runs the tests of native planted bugs in a debug build that holds them; `all` does not.
# usage: ci/sanitize.sh [all|debug|address|thread|planted] [TESTS...]
# KAFKACORE_FUZZ_SECONDS is the time that each fuzzer gets, 60 if not given.
source "$(dirname "$0")/common.sh"

ci/build.sh test
root="$PWD"
tests=(tests/unit tests/simulation tests/hot tests/differential tests/integration tests/fuzz)
[ $# -lt 2 ] || tests=("${@:2}")

export KAFKACORE_FUZZ_SECONDS="${KAFKACORE_FUZZ_SECONDS:-60}"

# copy_and_build KIND FLAGS: a copy of the tree, compiled with assertions and with the sanitizers of FLAGS, if any.
copy_and_build() {
    local kind="$1" flags="$2" copy="build/sanitize/$1"
    mkdir -p "$copy"
    # Sources that the tree no longer has go first. The copy keeps its own extensions and objects, and sources keep the
    # tree's times, so that only what changed is compiled.
    rm -rf "$copy/tests"
    if [ -d "$copy/src" ]; then
        # Generated sources stay, or the build would compile everything again.
        find "$copy/src" -type f ! -name '*.so' ! -name 'wire.p*' ! -name error_codes.pxd ! -name api_keys.pxd -delete
    fi
    git ls-files -z --cached --others --exclude-standard |
        tar --create --null --files-from=- --ignore-failed-read 2>/dev/null | tar --extract --directory="$copy"
    (
        cd "$copy"
        [ -x .venv/bin/python ] || "$root/.venv/bin/python" -m venv --without-pip .venv
        # A path file makes the packages of the root's environment visible. The copy's own package comes before them.
        local packages="import sysconfig; print(sysconfig.get_path('purelib'))"
        printf '%s\n%s\n' "$PWD/src" "$("$root/.venv/bin/python" -c "$packages")" \
            >"$(.venv/bin/python -c "$packages")/kafkacore.pth"
        printf '#!%s/.venv/bin/python\nimport sys\nfrom kafkacore.tools.main import main\nsys.exit(main())\n' "$PWD" >.venv/bin/kafkacore
        chmod +x .venv/bin/kafkacore
        say "compiling the $kind build"
        KAFKACORE_DEBUG=1 KAFKACORE_SANITIZE="$flags" .venv/bin/python setup.py -q build_ext --inplace --parallel "$(nproc)" \
            --build-temp build/objects >build.log 2>&1 || { tail -n 40 build.log >&2; die "the $kind build failed; the whole log: $PWD/build.log"; }
    )
}

# The sanitizer's runtime must not be loaded into a JVM. A `java` of this directory, first on the path, starts the real one
# without it.
without_runtime() {
    local java
    java="$(command -v java)" || return 0
    mkdir -p build/bin
    printf '#!/bin/sh\nunset LD_PRELOAD\nexec %q "$@"\n' "$java" >build/bin/java
    chmod +x build/bin/java
}

tests_of_copy() {
    cd "$root/build/sanitize/$1"
    present=()
    for each in "${tests[@]}"; do [ -e "$each" ] && present+=("$each"); done
    say "$1: ${present[*]}"
}

# run_debug KIND: the tests in a debug copy. A failed assertion aborts the process with the text and the native stack.
run_debug() {
    local present
    tests_of_copy "$1"
    .venv/bin/python -X faulthandler -m pytest "${present[@]}" -p no:cacheprovider --capture=sys -o timeout=600 ||
        die "$1: the tests failed"
    cd "$root"
}

# run KIND LIBRARY VARIABLE OPTIONS: the tests in the copy under a sanitizer. The interpreter is not built with it, so the
# runtime is loaded first, and Python allocates each object with malloc, which the sanitizer watches.
run() {
    local kind="$1" library variable="$3" options="$4" present failed=0 helper=""
    library="$(gcc -print-file-name="$2")"
    [ -e "$library" ] || die "$2 is missing: apt install gcc libasan8 libubsan1 libtsan2 (or your gcc's version of them)"
    tests_of_copy "$kind"
    rm -f report.*
    without_runtime
    if [ "$kind" = thread ]; then
        helper="$PWD/build/thrd.so"
        gcc -shared -fPIC -O1 -o "$helper" "$root/ci/thrd.c"
    fi
    # Simulated clusters run ten times slower here. A few seeds of each kind reach the same native code; the hunts for
    # planted bugs count CPU time, so they are left out.
    export KAFKACORE_HUNTS=0 KAFKACORE_SIMULATED_SEEDS=8 KAFKACORE_SIMULATED_CLUSTERS=4 KAFKACORE_GROUP_SEEDS=5
    # A report in a child process counts as well: the process ends with this exit code, and its test fails. UBSan writes to
    # stderr whatever its log_path says, so pytest must not capture stderr.
    env PYTHONMALLOC=malloc PATH="$PWD/build/bin:$PATH" LD_PRELOAD="$library $(gcc -print-file-name=libstdc++.so) $helper" "$variable=$options:exitcode=66:log_path=$PWD/report" \
        UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1:log_path=$PWD/report" \
        .venv/bin/python -X faulthandler -m pytest "${present[@]}" -p no:cacheprovider --capture=sys -o timeout=600 || failed=$?
    # pytest loses what a dying process prints; the sanitizer writes its report to files.
    if compgen -G "report.*" >/dev/null; then
        head -n 60 report.* >&2
        die "$kind: reports are in $PWD/report.*"
    fi
    [ "$failed" -eq 0 ] || die "$kind: the tests failed"
    cd "$root"
}

wanted="${1:-all}"
case "$wanted" in
    all | debug | address | thread | planted) ;;
    *) die "unknown kind '$wanted'; usage: ci/sanitize.sh [all|debug|address|thread|planted] [TESTS...]" ;;
esac
if [ "$wanted" = all ] || [ "$wanted" = debug ]; then
    copy_and_build debug ""
    run_debug debug
fi
if [ "$wanted" = planted ]; then
    [ $# -ge 2 ] || tests=(tests/unit/simulation/test_planted_native.py)
    KAFKACORE_PLANTED=1 copy_and_build planted ""
    run_debug planted
fi
if [ "$wanted" = all ] || [ "$wanted" = address ]; then
    copy_and_build address address,undefined
    # CPython frees nothing at its end. Tests count our own live objects instead.
    run address libasan.so ASAN_OPTIONS "detect_leaks=0:halt_on_error=1:abort_on_error=0:detect_stack_use_after_return=1"
fi
if [ "$wanted" = all ] || [ "$wanted" = thread ]; then
    copy_and_build thread thread
    run thread libtsan.so TSAN_OPTIONS "suppressions=$root/ci/tsan.supp:halt_on_error=1:second_deadlock_stack=1:history_size=4"
fi
say "clean"
