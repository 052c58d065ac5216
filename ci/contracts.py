"""Checks that the rooms (packages) of kafkacore import only downward. It compares `import` in Python and `cimport` in
Cython with one table.

Usage: python ci/contracts.py [SOURCE_ROOT]. Prints one line for each import that points up or sideways, and exits with
1.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "kafkacore"

ENVIRONMENT = {"_fast", "protocol", "config", "runtime"}
STORES = ENVIRONMENT | {"storage", "network"}
CLUSTER = STORES | {"raft", "metadata"}
DECIDES = CLUSTER | {"zookeeper", "controller", "replication", "coordinator"}

# Maps each room to the rooms that it may import. A room may always import itself. Every room may import a module at the
# top level (`_version`).
ALLOWED = {
    "_fast": set(),
    "protocol": {"_fast"},
    "config": set(),
    "runtime": {"_fast"},
    "storage": ENVIRONMENT,
    "network": ENVIRONMENT,
    "client": {"_fast", "protocol"},
    "raft": STORES,
    "metadata": STORES,
    "zookeeper": ENVIRONMENT,
    "controller": CLUSTER | {"zookeeper"},
    "replication": CLUSTER,
    "coordinator": CLUSTER,
    "observability": CLUSTER,
    "inspection": CLUSTER,
    "server": DECIDES | {"observability"},
    "simulation": DECIDES | {"observability", "server"},
    "tools": DECIDES | {"observability", "inspection", "server", "simulation", "spark"},
    "spark": CLUSTER | {"client", "inspection"},
    "testing": DECIDES | {"observability", "server", "simulation", "tools"},
}

# Maps each package of `_fast` to the packages that it may import. Native code also has levels.
FAST = {
    "base": set(),
    "world": {"base"},
    "wait": {"base", "world"},
    "codec": {"base"},
    "schema": {"base"},
    "record": {"base", "world", "codec"},
    "columns": {"base", "world", "codec", "record"},
    "log": {"base", "world", "wait", "codec", "record"},
    "compact": {"base", "world", "wait", "codec", "record", "log"},
    "plane": {"base", "world", "wait", "log"},
    "follow": {"base", "world", "wait", "schema", "record", "log", "plane"},
    "hot": {"base", "world", "wait", "schema", "record", "log", "plane"},
}

# Packages of one room that may not import each other: the ZooKeeper-era controller and the quorum both import
# `controller.common`, but never each other.
APART = {("controller.quorum", "controller.zookeeper"), ("controller.zookeeper", "controller.quorum")}

# Libraries that only one room may import, so that no other room loads them or depends on them.
LIBRARY_ROOM = {"pyspark": "spark", "pyarrow": "spark"}

CIMPORT = re.compile(r"^\s*(?:from\s+(?P<module>[\w.]+)\s+c?import\s|c?import\s+(?P<plain>[\w.]+(?:\s*,\s*[\w.]+)*))")


def python_imports(path: Path, module: str) -> Iterator[tuple[int, str]]:
    """Yields every module that a `.py` or `.pyi` file imports. Relative imports are resolved against `module`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, name) for name in imported_from(node, path, module))


def imported_from(node: ast.ImportFrom, path: Path, module: str) -> Iterator[str]:
    origin = node.module or ""
    if node.level:
        package = module.split(".") if path.stem == "__init__" else module.split(".")[:-1]
        base = package[: len(package) - node.level + 1]
        origin = ".".join([*base, *([origin] if origin else [])])
    # `from kafkacore import server` names the room in the imported names, not in the module.
    for alias in node.names:
        yield f"{origin}.{alias.name}"


def cython_imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yields every `import` and `cimport` line of a `.pyx` or `.pxd` file. The first line of a statement is enough,
    because the module comes first."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not (match := CIMPORT.match(line)):
            continue
        if match["module"] == PACKAGE:
            names = line.split("import", 1)[1].strip(" ()").split(",")
            yield from ((number, f"{PACKAGE}.{name.split(' as ')[0].strip()}") for name in names)
        elif match["module"]:
            yield number, match["module"]
        else:
            yield from ((number, name.strip()) for name in match["plain"].split(","))


def complaint(importer: str, imported: str) -> str | None:
    """Returns why `importer` may not import `imported`, or None if it may. Both are dotted module names."""
    room = importer.split(".")[1]
    head, *rest = imported.split(".")
    if head != PACKAGE:
        owner = LIBRARY_ROOM.get(head)
        return f"{head} may be imported in {owner} only" if owner and owner != room else None
    target = rest[0] if rest else ""
    if target in ALLOWED and target != room and target not in ALLOWED.get(room, set()):
        return f"{room} may not import {target}"
    if room == target == "_fast":
        return complaint_inside_fast(importer.split("."), rest)
    for inner, outer in APART:
        if importer.startswith(f"{PACKAGE}.{inner}.") and imported.startswith(f"{PACKAGE}.{outer}"):
            return f"{inner} may not import {outer}"
    return None


def complaint_inside_fast(importer: list[str], imported: list[str]) -> str | None:
    """Returns why a package of `_fast` may not import another package, or None if it may."""
    if len(importer) < 3 or not importer[2] or len(imported) < 2:
        return None
    package, target = importer[2], imported[1]
    if package not in FAST:
        return f"_fast.{package} is not in the table of packages: add it to FAST in ci/contracts.py"
    if target in FAST and target != package and target not in FAST[package]:
        return f"_fast.{package} may not import _fast.{target}"
    return None


def violations(source_root: Path) -> Iterator[str]:
    """Yields `file:line: reason` for each import that the table does not allow."""
    package = source_root / PACKAGE
    for path in sorted(package.rglob("*")):
        if path.suffix not in {".py", ".pyi", ".pyx", ".pxd"} or path.parent == package:
            continue
        parts = path.relative_to(source_root).with_suffix("").parts
        module = ".".join(parts[:-1] if path.stem == "__init__" else parts)
        if parts[1] not in ALLOWED:
            yield f"{path}:1: {parts[1]} is not in the table of rooms: add it to ALLOWED in ci/contracts.py"
            continue
        found = python_imports(path, module) if path.suffix in {".py", ".pyi"} else cython_imports(path)
        for line, imported in found:
            # A package's own module counts as part of the package.
            if reason := complaint(f"{module}." if path.stem == "__init__" else module, imported):
                yield f"{path}:{line}: {reason} ({imported})"


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("src")
    found = list(violations(root))
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
