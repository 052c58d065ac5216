"""Makes the table and the plot of Appendix A's experiments, together with the figures that the document published."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

# Published averages in ms, for 500,000 znodes, 5 servers and the Java client. None stands for OutOfMemory or
# ConnectionLoss.
PUBLISHED: dict[tuple[str, int], float | None] = {
    ("set-data-sync", 0): 253_376.6,
    ("get-data-sync", 0): 64_151.8,
    ("multi-set-data-sync", 10): 33_340.6,
    ("multi-set-data-sync", 50): 17_126.4,
    ("multi-set-data-sync", 100): 11_308.2,
    ("multi-set-data-sync", 500): 7_564.4,
    ("multi-set-data-sync", 1_000): 6_908.6,
    ("multi-set-data-sync", 5_000): 5_432.0,
    ("multi-set-data-sync", 10_000): 5_170.8,
    ("multi-set-data-sync", 50_000): None,
    ("set-data-async", 0): 18_760.6,
    ("get-data-async", 0): 10_304.6,
    ("multi-check-and-set-data-async", 1): None,
    ("multi-check-and-set-data-async", 10): 4_270.8,
    ("multi-check-and-set-data-async", 50): 4_122.2,
    ("multi-check-and-set-data-async", 100): 3_824.2,
    ("multi-check-and-set-data-async", 500): 3_795.2,
    ("multi-check-and-set-data-async", 1_000): 3_773.0,
    ("multi-check-and-set-data-async", 5_000): 3_135.0,
    ("multi-check-and-set-data-async", 10_000): 3_308.6,
    ("multi-check-and-set-data-async", 50_000): None,
}
PUBLISHED_ZNODES = 500_000


def rate(row: dict[str, Any]) -> float | None:
    """Returns znodes per second, the median of all runs."""
    return row["znodes"] / statistics.median(row["ms"]) * 1e3 if row["ms"] and not row["failed"] else None


def cell(row: dict[str, Any]) -> str:
    found = rate(row)
    if found is None:
        return row["failed"] or ""
    low, high = (row["znodes"] / each * 1e3 for each in (max(row["ms"]), min(row["ms"])))
    cpu_us = statistics.median(row["cpu_ms"]) / row["znodes"] * 1e3
    return f"{found:,.0f} ({low:,.0f} - {high:,.0f}), {cpu_us:.1f} us"


def published(experiment: str, batch: int) -> str:
    if (experiment, batch) not in PUBLISHED:
        return ""
    ms = PUBLISHED[experiment, batch]
    return "fails" if ms is None else f"{PUBLISHED_ZNODES / ms * 1e3:,.0f}"


def table(rows: list[dict[str, Any]]) -> str:
    """Returns a Markdown table: znodes per second as median (lowest to highest), and the client's CPU time for each
    znode."""
    clients = list(dict.fromkeys(row["client"] for row in rows))
    lines = [
        "Znodes/s: median (lowest - highest), and the client's CPU for each znode.",
        "",
        f"| servers | experiment | batch | {' | '.join(clients)} | published (Java, 5 servers) |",
        f"|---|---|---|{'---|' * len(clients)}---|",
    ]
    groups: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["servers"], row["experiment"], row["batch"]), {})[row["client"]] = row
    for (servers, experiment, batch), found in groups.items():
        cells = " | ".join(cell(found[client]) if client in found else "" for client in clients)
        lines.append(f"| {servers} | {experiment} | {batch or ''} | {cells} | {published(experiment, batch)} |")
    return "\n".join(lines) + "\n"


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Draws one panel for each number of servers: znodes per second against the batch size. Both axes are
    logarithmic."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    counts = list(dict.fromkeys(row["servers"] for row in rows))
    figure, panels = plt.subplots(1, len(counts), figsize=(7 * len(counts), 5), squeeze=False, sharey=True)
    colours = {"kafkacore": "tab:blue", "kazoo": "tab:orange"}
    styles = {"multi-set-data-sync": "--", "multi-check-and-set-data-async": "-"}
    for panel, count in zip(panels[0], counts, strict=True):
        for (client, experiment), found in series(rows, count).items():
            if experiment in styles:
                xs, ys = zip(*found, strict=True)
                panel.plot(
                    xs, ys, styles[experiment], marker="o", color=colours[client], label=f"{client} {experiment}"
                )
            elif "async" in experiment:
                panel.axhline(found[0][1], color=colours[client], linestyle=":" if "get" in experiment else "-.",
                              linewidth=1, label=f"{client} {experiment}")  # fmt: skip
        panel.set(xscale="log", yscale="log", xlabel="znodes in a multi", title=f"{count} server(s)")
        panel.grid(visible=True, which="major", alpha=0.3)
        panel.legend(fontsize=7)
    panels[0][0].set_ylabel("znodes/s")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def series(rows: list[dict[str, Any]], servers: int) -> dict[tuple[str, str], list[tuple[int, float]]]:
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for row in rows:
        value = rate(row)
        if row["servers"] == servers and value is not None:
            found.setdefault((row["client"], row["experiment"]), []).append((max(row["batch"], 1), value))
    return found
