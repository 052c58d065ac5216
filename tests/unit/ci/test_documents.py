"""The documents name only files, folders and locks that exist. The documented lock order names every lock of the code,
and the documented packages import what the contract checker allows."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src" / "kafkacore"
DESIGN = ROOT / "docs" / "design.md"
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")),
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
# Folders that a build or a run creates, and files that exist only on the reader's machine.
MADE = ("build/", "dist/", ".venv", ".peers", "data", "/", "./")
PATH = re.compile(r"`([\w.*-]+(?:/[\w.*-]+)+/?)`")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")


def without_code(document):
    return re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_path_in_a_document_exists(document):
    text = without_code(document)
    # A path with a name in upper case contains a placeholder for the reader to fill in.
    paths = {path for path in PATH.findall(text) if not re.search(r"\b[A-Z]{3,}\b", path) and not path.startswith(MADE)}
    places = (ROOT, SOURCE, SOURCE / "_fast", SOURCE / "server", document.parent)
    assert [path for path in sorted(paths) if not any(list(place.glob(path.rstrip("/"))) for place in places)] == []
    assert [link for link in LINK.findall(text) if not (document.parent / link).exists()] == []


def test_the_readme_shows_the_first_targets_of_the_makefile():
    shown = re.search(r"^```\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)[1].splitlines()
    targets = re.findall(r"^([\w-]+): ##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert [line.split()[:3] for line in shown] == [["make", target, "#"] for target in targets[: len(shown)]]


def native_locks():
    """Yields `Struct.field` for each mutex in a native struct."""
    for path in sorted((SOURCE / "_fast").rglob("*.p*")):
        if path.suffix not in {".pxd", ".pyx"} or path.name == "sync.pxd":
            continue
        struct = None
        for line in path.read_text().splitlines():
            if opened := re.match(r"(?:ctypedef|cdef) struct (\w+):", line):
                struct = opened[1]
            elif struct and (field := re.match(r"    Mutex (\w+)", line)):
                yield f"{struct}.{field[1]}"


def python_locks():
    """Yields `Class.attribute` and the file of each lock and each condition."""
    for path in sorted(SOURCE.rglob("*.py")):
        owner = None
        for line in path.read_text().splitlines():
            if opened := re.match(r"class (\w+)", line):
                owner = opened[1]
            elif re.search(r"threading\.(?:R?Lock|Condition)\(", line) and (
                made := re.match(r"\s+(?:self\.)?(\w+)(?:: [^=]+)? = ", line)
            ):
                yield f"{owner}.{made[1]}", path.relative_to(SOURCE).as_posix()


def test_the_lock_order_names_every_native_lock():
    text = DESIGN.read_text()
    assert [lock for lock in native_locks() if f"`{lock}`" not in text] == []


def test_the_lock_order_names_every_lock_of_python():
    text = DESIGN.read_text()
    # These two locks need no place in the lock order. `LoopThread.forever` is not shared: the loop waits on it for ever
    # when its process ends. `FutureLogs._idle` is a condition on `FutureLogs._mutex`.
    alone = {("LoopThread.forever", "runtime/loops.py"), ("FutureLogs._idle", "storage/future_logs.py")}
    found = [lock for lock in python_locks() if lock not in alone]
    assert found
    assert [lock for lock, _ in found if f"`{lock}`" not in text] == []


def test_every_lock_of_the_lock_order_exists():
    text = DESIGN.read_text()
    text = text[text.index("## Locks") : text.index("## Ownership")]
    named = set(re.findall(r"`([A-Z]\w+\.\w*(?:lock|mutex|changed|checkpointing))`", text))
    assert named - {lock for lock, _ in python_locks()} - set(native_locks()) == set()


def names_in(text):
    return set(re.findall(r"`(\w+)`", text))


def documented_imports(table, above):
    """Returns which packages each package of a table may import. `above` is the set of packages in layers below the
    table's."""
    imports = {}
    for line in table.splitlines():
        row = re.match(r"\| `(\w+)` \|.*?\| (.*?) \|", line)
        if row is None:
            continue
        package, cell = row.groups()
        if excepted := re.match(r"all (?:(?:packages )?above )?but ([^;]*)", cell):
            allowed = above | set(imports) - names_in(excepted[1]) | names_in(cell[excepted.end() :])
        else:
            allowed = names_in(re.sub(r"(?:as|all that) `\w+`", "", cell))
            for referred in re.findall(r"(?:as|all that) `(\w+)`|`(\w+)` with all its imports", cell):
                allowed |= imports["".join(referred)]
        imports[package] = allowed
    return imports


def test_the_packages_of_the_design_import_what_the_contracts_allow():
    contracts = runpy.run_path(str(ROOT / "ci" / "contracts.py"))
    _, native, python = DESIGN.read_text().split("## A node in one process")[0].split("\n### ")
    assert documented_imports(native, set()) == contracts["FAST"]
    allowed = {package: imports for package, imports in contracts["ALLOWED"].items() if package != "_fast"}
    assert documented_imports(python, {"_fast"}) == allowed
