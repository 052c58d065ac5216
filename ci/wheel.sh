#!/usr/bin/env bash
# The source distribution in dist/, and one manylinux wheel made from it, for the Python and the processor that this runs
# on, proved in an empty environment.
# All Pythons and aarch64: cibuildwheel, whose configuration is in pyproject.toml.
source "$(dirname "$0")/common.sh"

ci/build.sh test,dev
glibc=2.28
machine="$(uname -m)"

# Zig brings the headers and stubs of any glibc, so the wheel runs on older systems than the one it is built on.
zig="$PWD/.venv/bin/python -m ziglang cc -target $machine-linux-gnu.$glibc"
rm -rf build/wheel dist/*.whl dist/*.tar.gz
mkdir -p build/wheel/source dist
# From a copy of what git knows: extensions that this machine's compiler built lie beside the sources here.
git ls-files -z --cached --others --exclude-standard | tar --create --null --files-from=- | tar --extract --directory=build/wheel/source
say "building for glibc $glibc"
CC="$zig" LDSHARED="$zig -shared" .venv/bin/python -m build --no-isolation --outdir build/wheel \
    build/wheel/source >build/wheel/log 2>&1 ||
    { tail -n 40 build/wheel/log >&2; die "no wheel"; }

mv build/wheel/*.tar.gz dist/
# Names what the wheel may run on, and fails if it needs more than that.
PATH="$PWD/.venv/bin:$PATH" .venv/bin/python -m auditwheel repair --plat "manylinux_${glibc/./_}_$machine" --wheel-dir dist build/wheel/*.whl
wheel="$(echo dist/*.whl)"

proof="$(mktemp -d)"
trap 'rm -rf "$proof"' EXIT
say "installing $wheel in an empty environment"
"${PYTHON:-python3}" -m venv "$proof/venv"
"$proof/venv/bin/python" -m pip install -q --disable-pip-version-check "$PWD/$wheel[test]"
# Away from the sources: what runs is what was installed.
(cd "$proof" && venv/bin/kafkacore demo --records 60000)
say "$wheel is good"
