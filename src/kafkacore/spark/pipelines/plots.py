"""Draws the plots of the pipelines on Matplotlib's axes."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql import Row

BLUE: Final = "#4c78a8"
RED: Final = "#b3261e"
_LEAST: Final = 0.001  # a logarithmic axis has no zero


def marks(axes: Any, events: Mapping[str, Sequence[object]]) -> None:
    """Draws a row of marks for each kind of event. The first kind is at the top."""
    kinds = list(reversed(list(events)))
    for height, kind in enumerate(kinds):
        axes.plot(events[kind], [height] * len(events[kind]), linestyle="none", marker="|", markersize=12)
    axes.set_yticks(range(len(kinds)), kinds)
    axes.set_ylim(-0.5, len(kinds) - 0.5)


def bars(axes: Any, names: Sequence[str], series: Mapping[str, Sequence[float]], unit: str) -> None:
    """Draws a group of bars for each name. A group has one bar of each series."""
    width = 0.8 / len(series)
    for number, (label, values) in enumerate(series.items()):
        axes.bar([at - 0.4 + width * (number + 0.5) for at in range(len(names))], values, width=width, label=label)
    axes.set_xticks(range(len(names)), names)
    axes.set_ylabel(unit)
    axes.yaxis.set_major_formatter(_short)
    _legend(axes)


def ranges(axes: Any, rows: Sequence[tuple[str, Sequence[float]]], unit: str) -> None:
    """Draws a line from the first to the last value of each row, with a mark at each value. The axis is logarithmic."""
    for at, (_, values) in enumerate(rows):
        shown = [max(value, _LEAST) for value in values]
        axes.plot([shown[0], shown[-1]], [-at, -at], color=BLUE, linewidth=1)
        axes.plot(shown, [-at] * len(shown), color=BLUE, linestyle="none", marker="o", markersize=4)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_yticks([-at for at in range(len(rows))], [name for name, _ in rows])
    axes.set_ylim(0.5 - len(rows), 0.5)
    axes.grid(axis="x", linewidth=0.3)
    axes.set_xlabel(unit)


def _short(value: float, _position: int | None = None) -> str:
    """Shortens a number with one of the prefixes k, M and G: 7 M instead of 7000000."""
    for factor, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:g} {name}"
    return f"{value:g}"


def lines(axes: Any, points: Sequence[tuple[str, object, float]], unit: str) -> None:
    """Draws a line for each name. A point is a name, a time and a value."""
    by_name: dict[str, list[tuple[object, float]]] = {}
    for name, at, value in points:
        by_name.setdefault(name, []).append((at, value))
    for name, line in sorted(by_name.items()):
        axes.plot([at for at, _ in line], [value for _, value in line], label=name)
    axes.set_ylabel(unit)
    _legend(axes)


def curves(axes: Any, rows: Sequence[tuple[str, Sequence[float]]], shares: Sequence[float], unit: str) -> None:
    """Draws the distribution of each row: for each value, the share of requests with at most this value. A row has a
    value for each of `shares`. The axis is linear below 0.1 and logarithmic above."""
    for name, values in rows:
        axes.step(values, shares, where="post", label=name)
    axes.set_xscale("symlog", linthresh=0.1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel(unit)
    axes.set_ylabel("share of requests")
    _legend(axes)


def spans(axes: Any, replicas: Sequence[Row], findings: Sequence[Row]) -> None:
    """Draws a bar from the start to the end of each log, a black mark at the committed end, and findings in red. Each
    bar is drawn relative to the length of its partition, because partitions have very different lengths. The first
    three columns of both arguments are topic, partition and broker."""
    heights = {tuple(row[:3]): -at for at, row in enumerate(replicas)}
    longest: dict[tuple[Any, ...], int] = {}
    for row in replicas:
        longest[row[:2]] = max(longest.get(row[:2], 1), row["end"], row["committed"])
    for row, height in zip(replicas, heights.values(), strict=True):
        unit = longest[row[:2]] / 100
        axes.barh(height, (row["end"] - row["start"]) / unit, left=row["start"] / unit, height=0.6, color=BLUE)
        axes.text(101, height, f"{row['start']:,} to {row['end']:,}", fontsize=8, va="center")
        if row["committed"]:
            axes.plot(row["committed"] / unit, height, marker="|", markersize=11, color="black")
    for row in findings:
        if (at := heights.get(tuple(row[:3]))) is not None and (offset := row["offset"]) is not None:
            unit = longest[row[:2]] / 100
            length = max(((row["endOffset"] or offset + 1) - offset) / unit, 0.5)
            axes.barh(at, length, left=offset / unit, height=0.6, color=RED)
    axes.set_yticks(list(heights.values()), [f"{topic}-{number}, broker {broker}" for topic, number, broker in heights])
    axes.set_ylim(0.4 - len(replicas), 0.6)
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of the partition's offsets; black: committed end; red: findings")


def _legend(axes: Any) -> None:
    """Places the legend to the right of the plot, so that it covers no data."""
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
