#!/usr/bin/env bash
# Runs the tests that reach native code under AddressSanitizer with UBSan, then under ThreadSanitizer, each on a copy of the
# tree with its own extensions: 15 and 25 minutes on two cores.   usage: ci/sanitize.sh [all|address|thread] [TESTS...]
# KAFKACORE_FUZZ_SECONDS is the budget of each fuzzer (default 60).
source "$(dirname "$0")/common.sh"

ci/build.sh test
root="$PWD"
tests=(tests/unit tests/simulation tests/hot tests/differential tests/integration tests/fuzz)
[ $# -lt 2 ] || tests=("${@:2}")

# The interpreter is built without the sanitizer. So the sanitizer's runtime is preloaded, and malloc replaces Python's pools,
# so that the sanitizer sees each object.
export PYTHONMALLOC=malloc KAFKACORE_FUZZ_SECONDS="${KAFKACORE_FUZZ_SECONDS:-60}"

copy_and_build() {
    local kind="$1" flags="$2" copy="build/sanitize/$1"
    mkdir -p "$copy"
    # Copies the sources with their times and keeps the copy's own extensions and objects. Removes files that the tree no longer
    # has.
    rm -rf "$copy/tests"
    [ ! -d "$copy/src" ] || find "$copy/src" -type f ! -name '*.so' -delete
    git ls-files -z --cached --others --exclude-standard |
        tar --create --null --files-from=- --ignore-failed-read 2>/dev/null | tar --extract --directory="$copy"
    (
        cd "$copy"
        [ -x .venv/bin/python ] || "$root/.venv/bin/python" -m venv --without-pip .venv
        # A path file makes the root's packages visible; kafkacore itself comes from the copy, which is first on the path.
        local packages="import sysconfig; print(sysconfig.get_path('purelib'))"
        printf '%s\n%s\n' "$PWD/src" "$("$root/.venv/bin/python" -c "$packages")" \
            >"$(.venv/bin/python -c "$packages")/kafkacore.pth"
        printf '#!%s/.venv/bin/python\nimport sys\nfrom kafkacore.tools.main import main\nsys.exit(main())\n' "$PWD" >.venv/bin/kafkacore
        chmod +x .venv/bin/kafkacore
        say "compiling with -fsanitize=$flags"
        KAFKACORE_SANITIZE="$flags" .venv/bin/python setup.py -q build_ext --inplace --parallel "$(nproc)" \
            --build-temp build/objects >build.log 2>&1 || { tail -n 40 build.log >&2; die "the extensions do not compile with -fsanitize=$flags; the log is in $copy/build.log"; }
    )
}

# The sanitizer must not check the JVM: a `java` in this directory, first on the path, starts the real one without the runtime.
without_runtime() {
    local java
    java="$(command -v java)" || return 0
    mkdir -p build/bin
    printf '#!/bin/sh\nunset LD_PRELOAD\nexec %q "$@"\n' "$java" >build/bin/java
    chmod +x build/bin/java
}

# run KIND LIBRARY VARIABLE OPTIONS: runs the tests in the copy with the runtime preloaded.
run() {
    local kind="$1" library variable="$3" options="$4" present=() failed=0 helper=""
    library="$(gcc -print-file-name="$2")"
    [ -e "$library" ] || die "$2 is missing: apt install gcc libasan8 libubsan1 libtsan2 (or your gcc's version of them)"
    cd "$root/build/sanitize/$kind"
    for each in "${tests[@]}"; do [ -e "$each" ] && present+=("$each"); done
    say "$kind: ${present[*]}"
    rm -f report.*
    without_runtime
    if [ "$kind" = thread ]; then
        helper="$PWD/build/thrd.so"
        gcc -shared -fPIC -O1 -o "$helper" "$root/ci/thrd.c"
    fi
    # A report in a child process counts too: it ends that process with this status, and its test fails. UBSan ignores its
    # log_path and writes to stderr, so pytest must not capture stderr at the level of file descriptors.
    env PATH="$PWD/build/bin:$PATH" LD_PRELOAD="$library $(gcc -print-file-name=libstdc++.so) $helper" "$variable=$options:exitcode=66:log_path=$PWD/report" \
        UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1:log_path=$PWD/report" \
        .venv/bin/python -X faulthandler -m pytest "${present[@]}" -p no:cacheprovider --capture=sys -o timeout=600 || failed=$?
    # pytest captures the output of a dying process, so the reports go to files of their own.
    if compgen -G "report.*" >/dev/null; then
        head -n 60 report.* >&2
        die "$kind: reports are in $PWD/report.*"
    fi
    [ "$failed" -eq 0 ] || die "$kind: the tests failed"
    cd "$root"
}

wanted="${1:-all}"
if [ "$wanted" = all ] || [ "$wanted" = address ]; then
    copy_and_build address address,undefined
    # CPython frees nothing at its end; the live-object tests find the leaks of our own code.
    run address libasan.so ASAN_OPTIONS "detect_leaks=0:halt_on_error=1:abort_on_error=0:detect_stack_use_after_return=1"
fi
if [ "$wanted" = all ] || [ "$wanted" = thread ]; then
    copy_and_build thread thread
    run thread libtsan.so TSAN_OPTIONS "suppressions=$root/ci/tsan.supp:halt_on_error=1:second_deadlock_stack=1:history_size=4"
fi
say "clean"
