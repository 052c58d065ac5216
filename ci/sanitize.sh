#!/usr/bin/env bash
# Runs the tests that reach native code with assertions on: in a debug build, under AddressSanitizer with UBSan, and under
# ThreadSanitizer. Each build is a copy of the tree below build/sanitize.
# `planted` runs the tests of native planted bugs, in a debug build that contains these bugs. `all` does not run them.
# Each directory of tests is a part, which runs in its own process. The script runs all parts, and lists their results at the
# end. It fails if any part failed. The output of each part is in build/sanitize/KIND/logs.
# usage: ci/sanitize.sh [all|debug|address|thread|planted] [TESTS...]
# KAFKACORE_FUZZ_SECONDS is the time for each fuzzer (default 60).
source "$(dirname "$0")/common.sh"

ci/build.sh test
root="$PWD"
# The tests of `columns` need PyArrow. The extra `spark` would also install PySpark, which has 480 MB.
.venv/bin/python -c 'import pyarrow' 2>/dev/null ||
    .venv/bin/python -m pip install -q --disable-pip-version-check 'pyarrow>=18'
tests=(tests/unit tests/simulation tests/hot tests/differential tests/integration tests/fuzz)
[ $# -lt 2 ] || tests=("${@:2}")

export KAFKACORE_FUZZ_SECONDS="${KAFKACORE_FUZZ_SECONDS:-60}"
# Searches for planted bugs count CPU time, but a build with assertions spends much of this time on the assertions.
without_hunts=KAFKACORE_HUNTS=0
# Tests wait longer, because these builds are slow, and even slower while the machine is busy.
export KAFKACORE_PATIENCE="${KAFKACORE_PATIENCE:-10}"
results=()
failures=()

# share_generated COPY: every kind compiles the same C files, so a new copy reuses those that Cython has made for another kind.
share_generated() {
    local copy="$1" other
    [ ! -d "$copy/build/cython" ] || return 0
    for other in build/sanitize/*; do
        [ -d "$other/build/cython" ] || continue
        mkdir -p "$copy/build"
        cp -a "$other/build/cython" "$copy/build/"
        # The copies keep their modification times. Otherwise Cython would translate everything that includes these files again.
        (cd "$other" && find src \( -name 'wire.p*' -o -name error_codes.pxd -o -name api_keys.pxd \) \
            -exec cp --archive --parents {} "$root/$copy" \;)
        return 0
    done
}

# copy_and_build KIND FLAGS: makes a copy of the tree, compiled with assertions and with the sanitizers in FLAGS, if any.
copy_and_build() {
    local kind="$1" flags="$2" copy="build/sanitize/$1"
    mkdir -p "$copy"
    # First delete sources that the tree no longer has. The copy keeps its own extensions and object files, and sources keep
    # the tree's modification times, so that only changed files are compiled.
    rm -rf "$copy/tests"
    if [ -d "$copy/src" ]; then
        # Generated sources stay. Otherwise the build would compile everything again.
        find "$copy/src" -type f ! -name '*.so' ! -name 'wire.p*' ! -name error_codes.pxd ! -name api_keys.pxd -delete
    fi
    git ls-files -z --cached --others --exclude-standard |
        tar --create --null --files-from=- --ignore-failed-read 2>/dev/null | tar --extract --directory="$copy"
    share_generated "$copy"
    (
        cd "$copy"
        [ -x .venv/bin/python ] || "$root/.venv/bin/python" -m venv --without-pip .venv
        # A .pth file makes the packages in the root's environment visible. The copy's own package comes before them.
        local packages="import sysconfig; print(sysconfig.get_path('purelib'))"
        printf '%s\n%s\n' "$PWD/src" "$("$root/.venv/bin/python" -c "$packages")" \
            >"$(.venv/bin/python -c "$packages")/kafkacore.pth"
        printf '#!%s/.venv/bin/python\nimport sys\nfrom kafkacore.tools.main import main\nsys.exit(main())\n' "$PWD" >.venv/bin/kafkacore
        chmod +x .venv/bin/kafkacore
        say "compiling the $kind build"
        KAFKACORE_DEBUG=1 KAFKACORE_SANITIZE="$flags" .venv/bin/python setup.py -q build_ext --inplace --parallel "$(nproc)" \
            --build-temp build/objects >build.log 2>&1 || { tail -n 40 build.log >&2; die "the $kind build failed; the whole log is in $PWD/build.log"; }
    )
}

# without_runtime DIRECTORY: the sanitizer's runtime must not be loaded into a JVM. The `java` in this directory, which is first
# on the PATH, starts the real `java` without the runtime.
without_runtime() {
    local directory="$1" java
    java="$(command -v java)" || return 0
    mkdir -p "$directory"
    printf '#!/bin/sh\nunset LD_PRELOAD\nexec %q "$@"\n' "$java" >"$directory/java"
    chmod +x "$directory/java"
}

# run_part KIND PART [VARIABLE=VALUE...]: runs the tests of a file or directory in their own process. Returns false if the
# process died before its last test.
run_part() {
    local kind="$1" part="$2" log result
    log="logs/${part//\//.}.log"
    env "${@:3}" .venv/bin/python -X faulthandler -m pytest "$part" -vv -p no:cacheprovider --capture=sys -o timeout=600 \
        >"$log" 2>&1 || {
        failures+=("$kind: $part: see $PWD/$log")
        grep -E '^(FAILED|ERROR) ' "$log" >&2 || true
    }
    # pytest loses the output of a dying process, so the sanitizer writes its reports to files.
    if compgen -G "report.*" >/dev/null; then
        failures+=("$kind: $part: see $(echo report.*) in $PWD/reports")
        head -n 60 report.* >&2
        mkdir -p reports
        mv report.* reports/
    fi
    result="$(tail -n 1 "$log")"
    [[ "$result" =~ \ in\ [0-9.]+s ]] || result="died in $(grep '::' "$log" | tail -n 1)"
    results+=("$kind: $part: $result")
    say "${results[-1]}"
    [[ "$result" != died* ]]
}

# run_parts KIND [VARIABLE=VALUE...]: runs all tests in the copy, in parts. If the process of a directory dies, each file of
# the directory runs again in its own process, so that the remaining tests also run.
run_parts() {
    local kind="$1" each part file parts=()
    cd "$root/build/sanitize/$kind"
    rm -f report.*
    mkdir -p logs
    for each in "${tests[@]}"; do
        if [ -d "$each" ] && ! compgen -G "$each/test_*.py" >/dev/null; then
            parts+=("$each"/[!_]*/)
        else
            parts+=("$each")
        fi
    done
    for part in "${parts[@]%/}"; do
        [ -e "${part%%::*}" ] || continue
        run_part "$kind" "$part" "${@:2}" || [ ! -d "$part" ] ||
            while read -r file; do
                run_part "$kind" "$file" "${@:2}" || true
            done < <(find "$part" -name 'test_*.py' | sort)
    done
    cd "$root"
}

# run KIND LIBRARY VARIABLE OPTIONS: runs the tests in the copy under a sanitizer. The interpreter is not built with the
# sanitizer, so the script preloads the runtime. Python allocates each object with malloc, which the sanitizer watches.
run() {
    local kind="$1" library variable="$3" options="$4" copy="$root/build/sanitize/$1" helper=""
    library="$(gcc -print-file-name="$2")"
    [ -e "$library" ] || die "$2 is missing: apt install gcc libasan8 libubsan1 libtsan2 (or your gcc's version of them)"
    without_runtime "$copy/build/bin"
    if [ "$kind" = thread ]; then
        helper="$copy/build/thrd.so"
        gcc -shared -fPIC -O1 -o "$helper" ci/thrd.c
    fi
    # Simulated clusters run ten times slower under a sanitizer. A few seeds of each kind reach the same native code.
    # A report in a child process also counts: the process ends with this exit code, and its test fails. UBSan always writes
    # to stderr, even if log_path is set, so pytest must not capture stderr.
    run_parts "$kind" "$without_hunts" KAFKACORE_SIMULATED_SEEDS=8 KAFKACORE_SIMULATED_CLUSTERS=4 KAFKACORE_GROUP_SEEDS=5 \
        PYTHONMALLOC=malloc PATH="$copy/build/bin:$PATH" \
        LD_PRELOAD="$library $(gcc -print-file-name=libstdc++.so) $helper" "$variable=$options:exitcode=66:log_path=$copy/report" \
        UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1:log_path=$copy/report"
}

wanted="${1:-all}"
case "$wanted" in
    all | debug | address | thread | planted) ;;
    *) die "unknown kind '$wanted'; usage: ci/sanitize.sh [all|debug|address|thread|planted] [TESTS...]" ;;
esac
if [ "$wanted" = all ] || [ "$wanted" = debug ]; then
    copy_and_build debug ""
    run_parts debug "$without_hunts"
fi
if [ "$wanted" = planted ]; then
    [ $# -ge 2 ] || tests=(tests/unit/simulation/test_planted_native.py)
    KAFKACORE_PLANTED=1 copy_and_build planted ""
    run_parts planted
fi
if [ "$wanted" = all ] || [ "$wanted" = address ]; then
    copy_and_build address address,undefined
    # CPython does not free its memory when it ends. Instead, tests count kafkacore's own live objects.
    run address libasan.so ASAN_OPTIONS "detect_leaks=0:halt_on_error=1:abort_on_error=0:detect_stack_use_after_return=1"
fi
if [ "$wanted" = all ] || [ "$wanted" = thread ]; then
    copy_and_build thread thread
    # The runtime guesses the size of a library's thread-local block from the bytes before the block. For one block in some
    # hundred, it mistakes other bytes for the size, and ends the process when it cannot allocate that much.
    run thread libtsan.so TSAN_OPTIONS "suppressions=$root/ci/tsan.supp:halt_on_error=1:second_deadlock_stack=1:history_size=4:intercept_tls_get_addr=0"
fi
[ "${#results[@]}" -gt 0 ] || die "no such tests: ${tests[*]}"
printf '%s\n' "${results[@]}"
[ "${#failures[@]}" -eq 0 ] || die "not clean:"$'\n'"$(printf '  %s\n' "${failures[@]}")"
say "clean"
