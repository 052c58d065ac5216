#!/usr/bin/env bash
# Coverage-guided fuzzing of what reads bytes natively, under AddressSanitizer and UBSan, on a copy of the tree with
# instrumented extensions of its own (gcc's -fsanitize-coverage).   usage: ci/fuzz.sh TARGET SECONDS [--seed N] [--keep DIR]
# Targets are in tests/support/fuzz_targets.py: records, validator, log, messages. An input that ends the process is left
# in build/fuzz/last-input; one that is worth keeping goes to tests/fuzz/corpus/TARGET.
source "$(dirname "$0")/common.sh"

[ $# -ge 2 ] || die "usage: ci/fuzz.sh TARGET SECONDS [--seed N] [--keep DIR]"
ci/build.sh test
root="$PWD"
copy=build/fuzz
# What the targets run through; the other extensions are the tree's own.
modules=(batch codec columns compression cursor epochs log_open message object_sink producers record recovery schema segment
    txn_index validate validator view walk)

mkdir -p "$copy"
git ls-files -z --cached --others --exclude-standard |
    tar --create --null --files-from=- --ignore-failed-read 2>/dev/null | tar --extract --directory="$copy"
cp --update src/kafkacore/_fast/*.so "$copy/src/kafkacore/_fast/"
library="$root/$copy/coverage.so"
gcc -shared -fPIC -O2 -Wall -Wextra -Werror -o "$library" ci/fuzz/coverage.c

sources=()
for each in "${modules[@]}"; do
    [ -e "src/kafkacore/_fast/$each.pyx" ] && sources+=("$each")
done
# Built again when any source has changed; the stamp is the list of their digests.
stamp="$(cat setup.py src/kafkacore/_fast/*.p?? | sha256sum)"
if [ "$(cat "$copy/built" 2>/dev/null)" != "$stamp" ]; then
    say "compiling ${#sources[@]} extensions for coverage"
    (
        cd "$copy"
        for each in "${sources[@]}"; do rm -f "src/kafkacore/_fast/$each".*.so; done
        KAFKACORE_SANITIZE=address,undefined KAFKACORE_COVERAGE=1 KAFKACORE_ONLY="$(IFS=, && echo "${sources[*]}")" \
            "$root/.venv/bin/python" setup.py -q build_ext --inplace --parallel "$(nproc)" --build-temp build/objects >build.log 2>&1 ||
            { tail -n 40 build.log >&2; die "no build with coverage; the whole log: $copy/build.log"; }
    )
    printf '%s\n' "$stamp" >"$copy/built"
fi

runtime="$(gcc -print-file-name=libasan.so)"
[ -e "$runtime" ] || die "libasan.so is missing: apt install gcc libasan8 libubsan1 (or your gcc's version of them)"
cd "$copy"
PYTHONPATH="$PWD/src" PYTHONMALLOC=malloc ASAN_OPTIONS="detect_leaks=0:halt_on_error=1" \
    UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1" LD_PRELOAD="$runtime $(gcc -print-file-name=libstdc++.so) $library" \
    "$root/.venv/bin/python" -X faulthandler ci/fuzz/guide.py "$1" "$2" "$root/tests/fuzz/corpus/$1" "${@:3}" ||
    die "the input is in $PWD/last-input"
say "clean"
