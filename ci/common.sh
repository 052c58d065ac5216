# The other scripts source this file: strict mode, the repository's root as working directory, say and die.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '%s: %s\n' "$(basename "$0")" "$*"; }
die() {
    say "$*" >&2
    exit 1
}
