#!/usr/bin/env bash
# Builds the source distribution and, from it, one manylinux wheel for this Python and processor, both in dist/, and runs the
# wheel in an empty environment.
# All Pythons and aarch64: cibuildwheel, whose configuration is in pyproject.toml.
source "$(dirname "$0")/common.sh"

ci/build.sh test,dev
glibc=2.28
machine="$(uname -m)"

# Zig has the headers and stubs of every glibc, so the wheel runs on older systems than the one that builds it.
zig="$PWD/.venv/bin/python -m ziglang cc -target $machine-linux-gnu.$glibc"
rm -rf build/wheel dist/*.whl dist/*.tar.gz
mkdir -p build/wheel/source dist
# Builds from a copy of the files that git knows, because this tree also holds extensions built by this machine's compiler.
git ls-files -z --cached --others --exclude-standard | tar --create --null --files-from=- | tar --extract --directory=build/wheel/source
say "building for glibc $glibc"
CC="$zig" LDSHARED="$zig -shared" .venv/bin/python -m build --no-isolation --outdir build/wheel \
    build/wheel/source >build/wheel/log 2>&1 ||
    { tail -n 40 build/wheel/log >&2; die "the wheel does not build; the log is in build/wheel/log"; }

mv build/wheel/*.tar.gz dist/
# Sets the platform tag of the wheel, and fails if the wheel needs more than that platform.
PATH="$PWD/.venv/bin:$PATH" .venv/bin/python -m auditwheel repair --plat "manylinux_${glibc/./_}_$machine" --wheel-dir dist build/wheel/*.whl
wheel="$(echo dist/*.whl)"

proof="$(mktemp -d)"
trap 'rm -rf "$proof"' EXIT
say "installing $wheel in an empty environment"
"${PYTHON:-python3}" -m venv "$proof/venv"
"$proof/venv/bin/python" -m pip install -q --disable-pip-version-check "$PWD/$wheel[test]"
# Runs outside the sources, so that Python imports the installed package.
(cd "$proof" && venv/bin/kafkacore demo --records 60000)
say "$wheel works"
