#!/usr/bin/env bash
# Coverage-guided fuzzing of the native code that parses bytes, under AddressSanitizer and UBSan. It uses a copy of the tree with
# instrumented extensions (gcc's -fsanitize-coverage).
#   usage: ci/fuzz.sh TARGET SECONDS [--seed N] [--keep DIR]     one target of tests/support/fuzz_targets.py
#          ci/fuzz.sh all [SECONDS]    every target, then tests/fuzz and the parsers of files under AddressSanitizer with
#                                      UBSan and under ThreadSanitizer, SECONDS (default 120) for each fuzzer
# If an input ends the process, it is in build/fuzz/last-input. Copy an input that is worth keeping to
# tests/fuzz/corpus/TARGET.
source "$(dirname "$0")/common.sh"

targets=(records columns validator log directory dump metadata messages offsets views)
[ $# -ge 2 ] || [ "${1:-}" = all ] || die "usage: ci/fuzz.sh TARGET SECONDS [--seed N] [--keep DIR], or ci/fuzz.sh all [SECONDS]"
[[ " all ${targets[*]} " == *" $1 "* ]] || die "unknown target $1; the targets are ${targets[*]}, and all"
ci/build.sh test
root="$PWD"
copy=build/fuzz
# The extensions that the targets execute. All others are copies of the tree's extensions.
packages=(base codec record schema log)
modules=(hot/offset_commit hot/offset_records hot/offset_rows)

mkdir -p "$copy"
[ ! -d "$copy/src" ] || find "$copy/src" -type f ! -name '*.so' -delete  # deletes files that the tree no longer has
git ls-files -z --cached --others --exclude-standard |
    tar --create --null --files-from=- --ignore-failed-read 2>/dev/null | tar --extract --directory="$copy"
find src/kafkacore/_fast -name '*.so' -exec cp --update --parents {} "$copy" \;
library="$root/$copy/coverage.so"
gcc -shared -fPIC -O2 -Wall -Wextra -Werror -o "$library" ci/fuzz/coverage.c

sources=()
for each in "${modules[@]}"; do
    sources+=("${each//\//.}")
done
for each in "${packages[@]}"; do
    for source in src/kafkacore/_fast/"$each"/*.pyx; do sources+=("$each.$(basename "$source" .pyx)"); done
done
# The build runs again if any source has changed. The stamp is the digest of all sources.
stamp="$(cat setup.py src/kafkacore/_fast/*/*.p?? | sha256sum)"
if [ "$(cat "$copy/built" 2>/dev/null)" != "$stamp" ]; then
    say "compiling ${#sources[@]} extensions for coverage"
    (
        cd "$copy"
        for each in "${sources[@]}"; do rm -f "src/kafkacore/_fast/${each//.//}".*.so; done
        KAFKACORE_SANITIZE=address,undefined KAFKACORE_COVERAGE=1 KAFKACORE_ONLY="$(IFS=, && echo "${sources[*]}")" \
            "$root/.venv/bin/python" setup.py -q build_ext --inplace --parallel "$(nproc)" --build-temp build/objects >build.log 2>&1 ||
            { tail -n 40 build.log >&2; die "the extensions do not compile with coverage; the whole log is in $copy/build.log"; }
    )
    printf '%s\n' "$stamp" >"$copy/built"
fi

runtime="$(gcc -print-file-name=libasan.so)"
[ -e "$runtime" ] || die "libasan.so is missing: apt install gcc libasan8 libubsan1 (or your gcc's version of them)"

# guided TARGET SECONDS [OPTIONS]
guided() (
    cd "$copy"
    PYTHONPATH="$PWD/src" PYTHONMALLOC=malloc ASAN_OPTIONS="detect_leaks=0:halt_on_error=1" \
        UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1" LD_PRELOAD="$runtime $(gcc -print-file-name=libstdc++.so) $library" \
        "$root/.venv/bin/python" -X faulthandler ci/fuzz/guide.py "$1" "$2" "$root/tests/fuzz/corpus/$1" "${@:3}" ||
        die "the input is in $PWD/last-input"
)

if [ "$1" != all ]; then
    guided "$@"
    say "clean"
    exit
fi

seconds="${2:-120}"
export KAFKACORE_SEED="${KAFKACORE_SEED:-new}"
fuzzers=(tests/fuzz tests/unit/inspection tests/differential/test_record_fuzz.py)
say "budget: $seconds s for each of ${#targets[@]} targets guided by coverage (address, undefined): ${targets[*]}"
say "budget: $seconds s for each fuzzer of ${fuzzers[*]} (address with undefined, then thread)"
for target in "${targets[@]}"; do
    guided "$target" "$seconds" | tee "$copy/$target.log"
done
KAFKACORE_FUZZ_SECONDS="$seconds" ci/sanitize.sh all "${fuzzers[@]}"
for target in "${targets[@]}"; do
    say "$target, $(tail -n 1 "$copy/$target.log")"
done
say "clean"
