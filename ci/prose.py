"""Finds phrases that a reader has to read twice, in comments, docstrings, messages, test names and Markdown.

Usage: python ci/prose.py [PATH ...]; prints `file:line: text` for each find and exits with 1 if there is any. Without a
path it reads the whole repository. Headings, code blocks and `quoted code` are not prose. A question may begin with
What or Who. The script knows only a few patterns, so it does not replace an editor.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

Block = tuple[int, str]  # the line on which a piece of prose begins, and its text with the line ends kept

EVERYTHING = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "setup.py", "pyproject.toml", ".ci", "ci")
EVERYTHING += ("docs", "examples", "benchmarks", "src", "tests")
SKIPPED = {"build", "node_modules", "target", "__pycache__"} | {"test_prose.py"}  # test_prose.py contains every pattern

OPENERS = r"(?:Of|What(?:ever)?|Who(?:se|ever)?)\b"
# A sentence begins at the beginning of a block of prose, or after the end of another sentence.
OPENER = re.compile(rf"(?:\A|(?<=[.!?])[\"')\]]*\s+|\n\s*\n)\s*(?P<begin>{OPENERS})(?P<rest>[^.!?]*[.!?]?)")
PHRASES = re.compile(
    r"(?<!\b[Tt]here )\b(?:is|are|was|were|be) none\b(?!, \w+,)"  # not the codec: none, gzip, ...
    r"|\b(?:is|are|was|were|be|been|being)\s+told\b"
    r"|\bthat\s+there\s+(?:is|are|was|were)\s+not\b"
    r"|\bthere\s+(?:is|are|was|were)\s+not(?=\s*(?:[.,;:)]|\Z))"
    r"|\b(?:tell|tells|told|telling)\s+of\b"
    r"|\b(?:is|are)\s+for\s+(?:the\s+)?\w+\s+to\s+\w+"
    r"|\b[Ww]hoever\b"
    r"|\b[Tt]he same of\b"
    r"|\b(?:is|are) called so\b"
    r"|\bthat there can be\b"
    r"|\bmemory is out\b"
    r"|\bany more\b(?=\s*(?:[.,;:)]|\Z))"
    r"|\bat (?:most|least) so (?:many|much|long|often)\b"
    r"|\b(?:for|in|once there are) so (?:many|much|long|often)\b(?=\s*(?:[.,;:)]|\Z))"
    r"|\ball the same\b(?=\s*(?:[.,;:)]|\Z))"
)
QUOTED_CODE = re.compile(r"(`+)[^`]*?\1")

# One alternative for each token that can contain the opening sign of a comment, so that the sign inside it is not taken
# for a comment.
CYTHON = re.compile(
    r"(?P<text>[rRbBuUfF]{0,2}(?:\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''"
    r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'))|(?P<comment>\#[^\n]*)",
    re.DOTALL,
)
C_LIKE = re.compile(
    r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|(?P<comment>//[^\n]*)|/\*(?P<block>.*?)\*/",
    re.DOTALL,
)
SHELL_COMMENT = re.compile(r"(?:^|(?<=\s))#(?![!{])[^\n]*")


def join_comments(comments: list[tuple[int, bool, str]]) -> Iterator[Block]:
    """Yields comment lines that follow each other as one piece of prose. A comment after code is a separate piece."""
    begin, lines, last, last_alone = 0, [], -1, False
    for line, alone, text in comments:
        if lines and not (alone and last_alone and line == last + 1):
            yield begin, "\n".join(lines)
            lines = []
        if not lines:
            begin = line
        lines.append(text)
        last, last_alone = line, alone
    if lines:
        yield begin, "\n".join(lines)


def python_blocks(source: str) -> Iterator[Block]:
    comments = [
        (token.start[0], not token.line[: token.start[1]].strip(), token.string.lstrip("#:! "))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    yield from join_comments(comments)
    tree = ast.parse(source)
    inside_f_strings = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside_f_strings:
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "`x`" for part in node.values)
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            name = node.name.removeprefix("test_").replace("_", " ").replace(" none", " None")
            yield node.lineno, name[:1].upper() + name[1:]


def cython_blocks(source: str) -> Iterator[Block]:
    comments = []
    for match in CYTHON.finditer(source):
        line = source.count("\n", 0, match.start()) + 1
        if match["text"]:
            yield line, match["text"].strip("rRbBuUfF\"'")
        else:
            before = source[source.rfind("\n", 0, match.start()) + 1 : match.start()]
            comments.append((line, not before.strip(), match["comment"].lstrip("#: ")))
    yield from join_comments(comments)


def c_blocks(source: str) -> Iterator[Block]:
    comments = []
    for match in C_LIKE.finditer(source):
        line = source.count("\n", 0, match.start()) + 1
        if match["block"]:
            yield line, re.sub(r"^[ \t*]+", "", match["block"], flags=re.MULTILINE)
        elif match["comment"]:
            before = source[source.rfind("\n", 0, match.start()) + 1 : match.start()]
            comments.append((line, not before.strip(), match["comment"].lstrip("/ ")))
    yield from join_comments(comments)


def shell_blocks(source: str) -> Iterator[Block]:
    comments = []
    for number, line in enumerate(source.splitlines(), 1):
        if match := SHELL_COMMENT.search(line):
            comments.append((number, not line[: match.start()].strip(), match[0].lstrip("# ")))
        elif quoted := re.search(r"\b(?:say|die|echo)\s+\"([^\"]*)\"", line):
            yield number, quoted[1]
    yield from join_comments(comments)


def markdown_blocks(source: str) -> Iterator[Block]:
    """Yields paragraphs, list items and table cells, but no headings, no fenced code, and no header row of a table."""
    begin, lines, fence = 0, [], ""
    rows = source.splitlines()
    for number, line in enumerate(rows, 1):
        text = line.strip()
        mark = next((sign for sign in ("```", "~~~") if text.startswith(sign)), "")
        is_code = bool(fence or mark)
        if mark and fence in {"", mark}:
            fence = "" if fence else mark
        is_row = text.startswith("|")
        ends = is_code or not text or text.startswith("#") or is_row
        if lines and (ends or re.match(r"(?:[-*+]|\d+\.)\s", text)):
            yield begin, "\n".join(lines)
            lines = []
        if is_row and not is_code:
            is_header = number < len(rows) and re.fullmatch(r"[|:\- ]+", rows[number].strip())
            yield from ((number, cell.strip()) for cell in text.strip("|").split("|") if not is_header)
        elif not ends:
            begin = begin if lines else number
            lines.append(re.sub(r"^(?:[-*+>]|\d+\.)\s+", "", text))
    if lines:
        yield begin, "\n".join(lines)


READERS = {
    ".py": python_blocks,
    ".pyi": python_blocks,
    ".pyx": cython_blocks,
    ".pxd": cython_blocks,
    ".pxi": cython_blocks,
    ".c": c_blocks,
    ".h": c_blocks,
    ".go": c_blocks,
    ".java": c_blocks,
    ".js": c_blocks,
    ".md": markdown_blocks,
    ".sh": shell_blocks,
    ".toml": shell_blocks,
    "": shell_blocks,  # Makefile, .ci/run
}


def blank_code(text: str) -> str:
    """Returns `text` with `code` blanked out and every line end still in its place."""
    return QUOTED_CODE.sub(lambda match: "`" + re.sub(r"[^\n]", "x", match[0][1:-1]) + "`", text)


def finds(begin: int, block: str) -> Iterator[tuple[int, str]]:
    """Yields the line and the words of every match in one piece of prose."""
    text = blank_code(block)
    places = [match.start("begin") for match in OPENER.finditer(text) if not match["rest"].endswith("?")]
    places += [match.start() for match in PHRASES.finditer(text)]
    for place in sorted(set(places)):
        line_begin, line_end = text.rfind("\n", 0, place) + 1, text.find("\n", place)
        yield begin + text.count("\n", 0, place), block[line_begin : None if line_end < 0 else line_end].strip()


def files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in found:
            inner = file.relative_to(path).parts
            if file.is_file() and not SKIPPED.intersection(inner) and file.suffix in READERS:
                yield file


def check(path: Path) -> Iterator[str]:
    source = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == "" and path.name != "Makefile" and not source.startswith("#!"):
        return
    try:
        found = {find for begin, block in READERS[path.suffix](source) for find in finds(begin, block)}
    except (SyntaxError, tokenize.TokenError) as error:
        found = {(1, f"cannot be parsed: {error}")}
    yield from (f"{path}:{line}: {text}" for line, text in sorted(found))


def main() -> int:
    paths = [Path(argument) for argument in sys.argv[1:]] or [Path(name) for name in EVERYTHING if Path(name).exists()]
    if missing := [path for path in paths if not path.exists()]:
        print("prose.py: no such file or folder:", *missing, file=sys.stderr)
        return 2
    found = [line for path in files(paths) for line in check(path)]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
