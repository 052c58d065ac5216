#!/usr/bin/env bash
# Makes the source distribution, and from it one manylinux wheel for each installed CPython from 3.11 to 3.14. Tests each
# wheel in an empty environment with its Python. Everything goes to dist/.
# The script looks for python3.11 to python3.14 on the PATH and in pyenv. PYTHONS="python3.12 /opt/python" names others.
# cibuildwheel makes the wheels for aarch64. Its configuration is in pyproject.toml.
source "$(dirname "$0")/common.sh"

ci/build.sh test,dev
glibc=2.28
machine="$(uname -m)"

# Prints the path of one CPython for each release, the first that it finds.
find_pythons() {
    local minor python
    for minor in 11 12 13 14; do
        for python in "$(command -v "python3.$minor" || true)" "${PYENV_ROOT:-$HOME/.pyenv}/versions/3.$minor".*/bin/python3; do
            # For a Python that is not selected, pyenv puts a program on the PATH that only prints an error.
            if [ -x "$python" ] && "$python" -c "import ensurepip" 2>/dev/null; then
                printf '%s\n' "$python"
                break
            fi
        done
    done
}
mapfile -t pythons < <(if [ -n "${PYTHONS:-}" ]; then printf '%s\n' $PYTHONS; else find_pythons; fi)
[ "${#pythons[@]}" -gt 0 ] || die "no CPython from 3.11 to 3.14 is installed; name one in PYTHONS"

rm -rf build/wheel dist/*.whl dist/*.tar.gz
mkdir -p build/wheel/source dist
# The build uses a copy of the files in git, because the source tree also contains extensions built by this machine's compiler.
git ls-files -z --cached --others --exclude-standard | tar --create --null --files-from=- | tar --extract --directory=build/wheel/source
# "-" names no extension, because the source distribution contains none.
KAFKACORE_ONLY=- .venv/bin/python -m build --no-isolation --sdist --outdir dist build/wheel/source >build/wheel/log 2>&1 ||
    { tail -n 40 build/wheel/log >&2; die "the source distribution failed; the whole log is in build/wheel/log"; }
source="$(echo dist/*.tar.gz)"

[ "${KAFKACORE_PLANTED:-}" != 1 ] || die "a wheel must not contain planted bugs: unset KAFKACORE_PLANTED"

# Zig contains the headers and stubs of every glibc, so the wheel also runs on older systems than the build machine.
export CC="$PWD/.venv/bin/python -m ziglang cc -target $machine-linux-gnu.$glibc"
export LDSHARED="$CC -shared"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
for python in "${pythons[@]}"; do
    tag="$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')"
    say "$tag: building for glibc $glibc with $("$python" -V)"
    "$python" -m venv "$scratch/$tag"
    "$scratch/$tag/bin/python" -m pip wheel -q --disable-pip-version-check --no-deps --wheel-dir "build/wheel/$tag" "$source" \
        >"build/wheel/log-$tag" 2>&1 || { tail -n 40 "build/wheel/log-$tag" >&2; die "$tag: the wheel failed; the whole log is in build/wheel/log-$tag"; }
    # Tags the wheel with the systems on which it may run. Fails if the wheel needs more than these systems have.
    PATH="$PWD/.venv/bin:$PATH" .venv/bin/python -m auditwheel repair --plat "manylinux_${glibc/./_}_$machine" --wheel-dir dist "build/wheel/$tag"/*.whl
    wheel="$(echo dist/*"-$tag-"*.whl)"
    say "$tag: installing $wheel in an empty environment"
    env -u CC -u LDSHARED "$scratch/$tag/bin/python" -m pip install -q --disable-pip-version-check "$PWD/$wheel[test]"
    # Only a build for the simulator may contain planted bugs.
    (cd "$scratch" && "$tag/bin/python" -c 'from kafkacore._fast.base.debug_checks import PLANTED; raise SystemExit(PLANTED)') ||
        die "$tag: the wheel contains planted bugs: unset KAFKACORE_PLANTED and build again"
    # Outside the source tree, the demo runs the installed code.
    (cd "$scratch" && "$tag/bin/kafkacore" demo --records 60000)
    say "$tag: $wheel is good"
done
for minor in 11 12 13 14; do
    compgen -G "dist/*-cp3$minor-*.whl" >/dev/null || say "cp3$minor: no wheel made here; cibuildwheel makes it"
done
