# The other scripts source this file. It sets strict mode, changes to the repository's root, and defines say and die.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '%s: %s\n' "$(basename "$0")" "$*"; }
die() {
    say "$*" >&2
    exit 1
}
