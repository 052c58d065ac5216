# Sourced by the other scripts: strict mode, the repository's root, plain words.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '%s: %s\n' "$(basename "$0")" "$*"; }
die() {
    say "$*" >&2
    exit 1
}
