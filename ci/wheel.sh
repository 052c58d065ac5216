#!/usr/bin/env bash
# Makes the source distribution and, from it, one manylinux wheel for each CPython from 3.11 to 3.14 that is installed
# here. Proves each wheel in an empty environment of its Python. Everything goes to dist/.
# The Pythons are python3.11 to python3.14 on the PATH and in pyenv; PYTHONS="python3.12 /opt/python" names others.
# aarch64: cibuildwheel, whose configuration is in pyproject.toml.
source "$(dirname "$0")/common.sh"

ci/build.sh test,dev
glibc=2.28
machine="$(uname -m)"

# The file name of every CPython that the wheels are for, one for each release, the first one found.
find_pythons() {
    local minor python
    for minor in 11 12 13 14; do
        for python in "$(command -v "python3.$minor" || true)" "${PYENV_ROOT:-$HOME/.pyenv}/versions/3.$minor".*/bin/python3; do
            # pyenv puts a stand-in on the PATH for a Python that is not selected; it only prints an error.
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
# A copy of the files that git knows: extensions that this machine's compiler built lie beside the sources here.
git ls-files -z --cached --others --exclude-standard | tar --create --null --files-from=- | tar --extract --directory=build/wheel/source
# "-" names no extension: the source distribution holds none.
KAFKACORE_ONLY=- .venv/bin/python -m build --no-isolation --sdist --outdir dist build/wheel/source >build/wheel/log 2>&1 ||
    { tail -n 40 build/wheel/log >&2; die "no source distribution; the whole log: build/wheel/log"; }
source="$(echo dist/*.tar.gz)"

[ "${KAFKACORE_PLANTED:-}" != 1 ] || die "a wheel holds no planted bugs: unset KAFKACORE_PLANTED"

# Zig brings the headers and stubs of any glibc, so the wheel runs on older systems than the one that builds it.
export CC="$PWD/.venv/bin/python -m ziglang cc -target $machine-linux-gnu.$glibc"
export LDSHARED="$CC -shared"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
for python in "${pythons[@]}"; do
    tag="$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')"
    say "$tag: building for glibc $glibc with $("$python" -V)"
    "$python" -m venv "$scratch/$tag"
    "$scratch/$tag/bin/python" -m pip wheel -q --disable-pip-version-check --no-deps --wheel-dir "build/wheel/$tag" "$source" \
        >"build/wheel/log-$tag" 2>&1 || { tail -n 40 "build/wheel/log-$tag" >&2; die "$tag: no wheel; the whole log: build/wheel/log-$tag"; }
    # Names the systems that the wheel may run on, and fails if it needs more than they have.
    PATH="$PWD/.venv/bin:$PATH" .venv/bin/python -m auditwheel repair --plat "manylinux_${glibc/./_}_$machine" --wheel-dir dist "build/wheel/$tag"/*.whl
    wheel="$(echo dist/*"-$tag-"*.whl)"
    say "$tag: installing $wheel in an empty environment"
    env -u CC -u LDSHARED "$scratch/$tag/bin/python" -m pip install -q --disable-pip-version-check "$PWD/$wheel[test]"
    # A planted bug is for the simulator's own build.
    (cd "$scratch" && "$tag/bin/python" -c 'from kafkacore._fast.base.debug_checks import PLANTED; raise SystemExit(PLANTED)') ||
        die "$tag: the wheel holds planted bugs: unset KAFKACORE_PLANTED and build again"
    # Away from the sources: the demo runs the code that was installed.
    (cd "$scratch" && "$tag/bin/kafkacore" demo --records 60000)
    say "$tag: $wheel is good"
done
for minor in 11 12 13 14; do
    compgen -G "dist/*-cp3$minor-*.whl" >/dev/null || say "cp3$minor: no wheel made here; cibuildwheel makes it"
done
