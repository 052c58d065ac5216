"""Writes one HTML page with tables and plots. The page loads nothing from other places."""

import html
import io
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from pyspark.sql import DataFrame

MOST_ROWS: Final = 200
_SHORT: Final = 48  # the browser does not wrap a text of at most this many characters
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; color: #222 }
h1 { font-size: 1.6em } h2 { font-size: 1.3em; margin-top: 2.5em; border-top: 1px solid #ccc; padding-top: 1em }
h3 { font-size: 1.1em; margin-top: 1.5em }
table { border-collapse: collapse; font-size: 13px } .wide { overflow-x: auto }
th, td { border-bottom: 1px solid #ddd; padding: .25em .7em; text-align: left; vertical-align: top }
td.short { white-space: nowrap } td.number { text-align: right; font-variant-numeric: tabular-nums }
svg { max-width: 100%; height: auto }
p.note { color: #555 } p.good { color: #176f2c } p.bad { color: #b3261e }
"""


class Report:
    """Collects the parts of a page, and writes the page."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._parts: list[str] = []

    def text(self, words: str, kind: str = "note") -> None:
        """Adds a paragraph. `kind` is `note`, `good` or `bad`."""
        self._parts.append(f'<p class="{kind}">{html.escape(words)}</p>')

    def section(self, title: str) -> None:
        """Begins a section with its own tables and plots."""
        self._parts.append(f"<h2>{html.escape(title)}</h2>")

    def table(self, title: str, rows: DataFrame, *, empty: str = "There are no rows.") -> None:
        """Adds a table with the first MOST_ROWS rows."""
        self.rows(title, rows.columns, rows.limit(MOST_ROWS + 1).collect(), empty=empty)

    def rows(
        self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, empty: str = "There are no rows."
    ) -> None:
        """Adds a table from rows that are already on the driver."""
        self._parts.append(f"<h3>{html.escape(title)}</h3>")
        if not rows:
            self.text(empty)
            return
        head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
        body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:MOST_ROWS])
        self._parts.append(f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>')
        if len(rows) > MOST_ROWS:
            self.text(f"The page shows the first {MOST_ROWS} rows. The Parquet table beside it has all of them.")

    def plot(self, title: str, draw: Callable[[Any], None], *, size: tuple[float, float] = (9.0, 3.2)) -> None:
        """Adds a plot. `draw` receives Matplotlib's axes and draws on them."""
        from matplotlib.figure import Figure  # noqa: PLC0415 - a slow import, not needed without plots

        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots()
        draw(axes)
        axes.spines[["top", "right"]].set_visible(False)
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None})
        drawn = written.getvalue()
        self._parts.append(f"<h3>{html.escape(title)}</h3>{drawn[drawn.index('<svg') :]}")

    def append(self, other: "Report") -> None:
        """Adds the parts of another page."""
        self._parts += other._parts

    def write(self, path: str) -> None:
        """Writes the page to a file. Raises OSError."""
        page = (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(self.title)}</title>'
            f"<style>{_STYLE}</style><h1>{html.escape(self.title)}</h1>{''.join(self._parts)}</html>\n"
        )
        with open(path, "w", encoding="utf-8") as file:
            file.write(page)


def _cell(value: Any) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, int | float) and not isinstance(value, bool):
        shown = f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
        return f'<td class="number">{shown}</td>'
    shown = html.escape(_words(value))
    return f'<td class="short">{shown}</td>' if len(shown) <= _SHORT else f"<td>{shown}</td>"


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.isoformat(" ", "milliseconds")
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)
