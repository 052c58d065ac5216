#!/usr/bin/env bash
# Makes .venv/bin/kafkacore: creates the environment, installs the dependencies of the named extras, builds the extensions in
# place, and installs kafkacore as an editable package.
# Does nothing if nothing changed.   usage: ci/build.sh [test[,dev][,bench]]
source "$(dirname "$0")/common.sh"

extras="${1:-test}"
python="${PYTHON:-python3}"
stamps=build/stamps
mkdir -p "$stamps"
# Only one build may run at a time, because a build in a second terminal would write the same files.
exec 9>"$stamps/lock"
flock 9

[ -x .venv/bin/python ] || {
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "kafkacore needs Python 3.11 or newer, but $python is $("$python" -V): set PYTHON to another interpreter"
    say "creating .venv"
    "$python" -m venv .venv
}

install_dependencies() {
    say "installing kafkacore[$extras]"
    # The build requirements come first. The editable install runs without isolation, so that it and build_ext use the same
    # Cython.
    .venv/bin/python -m pip install -q --disable-pip-version-check 'setuptools>=77' 'Cython>=3.1'
    # "-" matches no extension: pip would compile them one after the other into a directory that it deletes.
    KAFKACORE_ONLY=- .venv/bin/python -m pip install -q --disable-pip-version-check --no-build-isolation -e ".[$extras]"
}

# The marker files are in .venv, so that they disappear when somebody replaces .venv. It is sufficient if kafkacore is installed
# with more extras than the named ones.
fingerprint="$(cat pyproject.toml src/kafkacore/_version.py | sha256sum)"
installed() {
    local marker extra
    for marker in .venv/.kafkacore-*; do
        [ "$(cat "$marker" 2>/dev/null)" = "$fingerprint" ] || continue
        for extra in ${extras//,/ }; do
            [[ "-${marker#.venv/.kafkacore-}-" == *"-$extra-"* ]] || continue 2
        done
        return 0
    done
    return 1
}
installed || {
    install_dependencies
    printf '%s\n' "$fingerprint" >".venv/.kafkacore-${extras//,/-}"
}

# Generates sources from Kafka's tables. A file that would not change keeps its modification time.
.venv/bin/python ci/native_tables.py

built="$stamps/extensions"
missing_extension() {
    local source
    while read -r source; do
        compgen -G "${source%.pyx}.*.so" >/dev/null || return 0
    done < <(find src/kafkacore/_fast -name '*.pyx')
    return 1
}
# Deletes extensions whose source no longer exists. Python would still import such an extension, in place of a package with the
# same name, or where it should raise an error.
while read -r library; do
    [ -e "${library%%.*}.pyx" ] || rm "$library"
done < <(find src/kafkacore/_fast -name '*.so')
if missing_extension || [ -n "$(find setup.py src/kafkacore -name __pycache__ -prune -o \
    \( -name '*.pyx' -o -name '*.pxd' -o -name '*.h' -o -name setup.py \) -newer "$built" -print -quit 2>&1)" ]; then
    say "compiling the extensions; the first time, this takes some minutes"
    # The stamp is older than the build, so that the next build sees files that change during this one.
    touch "$built.started"
    .venv/bin/python setup.py -q build_ext --inplace --parallel "$(nproc)" --build-temp build/objects >build/extensions.log 2>&1 ||
        { tail -n 60 build/extensions.log >&2; die "the extensions do not compile; the whole log is in build/extensions.log"; }
    mv "$built.started" "$built"
fi

# Compiles bytecode, as pip does for a wheel. Without it, and with PYTHONDONTWRITEBYTECODE, every start would compile every
# module.
.venv/bin/python -m compileall -q src/kafkacore
