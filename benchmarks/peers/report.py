"""The table and the plot of a run."""

import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path

LOGARITHMIC_FROM = 100


def conditions(rounds, directory):
    """Describes the machine and the run, because the figures depend on them."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        "unknown",
    )
    return (
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores ({model}), Linux {platform.release()}, "
        f"Python {platform.python_version()}, files on {file_system(directory)}, "
        f"medians of {rounds} interleaved rounds (lowest to highest in brackets)"
    )


def file_system(directory):
    wanted = os.path.realpath(directory)
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    return max(((point, kind) for point, kind in mounts if wanted.startswith(point)), key=lambda one: len(one[0]))[1]


def spread(values):
    """Returns `median (lowest - highest)`, with three digits each."""
    if len(values) == 1:
        return f"{values[0]:.3g}"
    low, middle, high = (f"{digits(value)}" for value in (min(values), statistics.median(values), max(values)))
    return f"**{middle}** ({low} - {high})"


def digits(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(results, rows, names, against=None):
    """Returns a Markdown table with a line for each figure of each row, and a column for each contestant. `against` may
    name a contestant. Then a last column divides the first contestant's medians by the medians of that contestant."""
    columns = [*names, f"{names[0]} / {against}"] if against in names[1:] else names
    lines = ["| work | figure | " + " | ".join(columns) + " |", "|---|---|" + "---|" * len(columns)]
    for row, (title, _, _) in rows.items():
        figures = {figure for name in names for one in results[row][name] for figure in one}
        order = [figure for name in names for one in results[row][name] for figure in one]
        for figure in sorted(figures, key=order.index):
            cells = []
            for name in names:
                values = [one[figure] for one in results[row][name] if figure in one]
                cells.append(spread(values) if values else "-")
            if columns is not names:
                cells.append(ratio(results[row], figure, names[0], against))
            lines.append(f"| {title} | {figure} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def ratio(figures, figure, ours, theirs):
    """Returns the ratio of our median of one figure to theirs."""
    medians = []
    for name in (ours, theirs):
        values = [one[figure] for one in figures[name] if figure in one]
        medians.append(statistics.median(values) if values else 0)
    return f"{medians[0] / medians[1]:.2f}" if all(medians) else "-"


def plot(results, rows, names, words, path):
    """Draws one small chart for each row: a bar for each contestant, and whiskers from the lowest figure to the
    highest. `words` is the line below the charts."""
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        print("no plot, because matplotlib is missing: ci/build.sh bench installs it", file=sys.stderr)
        return

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    columns = min(3, len(rows))
    lines = -(-len(rows) // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(4.7 * columns, 3.2 * lines), squeeze=False)
    for axis, (row, (title, shown, _)) in zip(axes.flat, rows.items(), strict=False):
        present = [(name, [one[shown] for one in results[row][name] if shown in one]) for name in names]
        present = [(name, values) for name, values in present if values]
        middles = [statistics.median(values) for _, values in present]
        whiskers = [
            [middle - min(values) for middle, (_, values) in zip(middles, present, strict=True)],
            [max(values) - middle for middle, (_, values) in zip(middles, present, strict=True)],
        ]
        colours = ["#c0392b" if name == "kafkacore" else "#7f8c8d" for name, _ in present]
        axis.bar([name for name, _ in present], middles, yerr=whiskers, color=colours, capsize=3)
        if middles and min(middles) > 0 and max(middles) > LOGARITHMIC_FROM * min(middles):
            axis.set_yscale("log")  # on a linear axis all bars but one would be flat
        axis.set_title(title, fontsize=9)
        axis.set_ylabel(shown, fontsize=8)
        axis.tick_params(labelsize=7)
        axis.tick_params("x", rotation=20)
    for axis in list(axes.flat)[len(rows) :]:
        axis.remove()
    figure.supxlabel(words, fontsize=6, wrap=True)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def write(out, results, rows, names, rounds, directory, name="peers", against=None):
    """Writes peers.md, peers.json and peers.png to `out`, or files with another `name`. Returns the text of the first
    file."""
    out.mkdir(parents=True, exist_ok=True)
    words = conditions(rounds, directory)
    text = f"{words}.\n\n{table(results, rows, names, against)}"
    (out / f"{name}.md").write_text(text)
    (out / f"{name}.json").write_text(json.dumps({"conditions": words, "results": results}, indent=1))
    plot(results, rows, names, words, out / f"{name}.png")
    return text
