"""Makes the figures and tables of `docs/control-plane.md`."""

import math
import statistics

OURS, APACHE = "kafkacore", "Apache Kafka 3.9"
COLOURS = {OURS: "tab:blue", APACHE: "tab:orange"}
STYLES = {"shared": ":", "lane": "--", "apart": "-", "clients": "-.", "quiet": ":", "storm": "-"}
LOADS = {
    "idle": "no load",
    "producing": "{producers} connections produce",
    "below": "40 connections, 50 places in the queue",
    "full": "100 connections, 50 places in the queue",
}
PANELS = {
    "acks_all_moving_ms": "1. acks=all, the request that was parked (ms)",
    "lost_acks_1": "2. acknowledged records lost, acks=1",
    "lost_acks_0": "2. records taken and lost, acks=0",
    "without_leader_ms": "3. no broker takes records (ms)",
    "stale_ms": "4. Metadata names the old leader (ms)",
    "deletion_ms": "5. topic deletion (ms)",
}


def quantile(values, share):
    """Returns the smallest value v such that at least `share` of all values are at most v."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def figures(results, out):
    """Writes latency.svg, request-log.svg (if there are request logs), consequences.svg and storm.svg."""
    import matplotlib as mpl

    mpl.use("Agg")
    # With this salt, the same results always give identical SVG files.
    mpl.rcParams.update({"svg.hashsalt": "control-plane", "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot as plt

    out.mkdir(parents=True, exist_ok=True)

    def save(figure, name):
        figure.tight_layout()
        figure.savefig(out / name, metadata={"Date": None}, bbox_inches="tight")
        plt.close(figure)

    save(latency_figure(plt, results), "latency.svg")
    if any(results["logged"].values()):
        save(logged_figure(plt, results["logged"]), "request-log.svg")
    save(consequences_figure(plt, results["consequences"]), "consequences.svg")
    save(storm_figure(plt, results["storm"]), "storm.svg")


def distribution(panel, values, kind, way):
    """Draws the cumulative distribution of all values: for each time, the share of requests answered within it."""
    ordered = sorted(values)
    shares = [(place + 1) / len(ordered) for place in range(len(ordered))]
    panel.step(ordered, shares, where="post", color=COLOURS[kind], linestyle=STYLES[way], label=f"{kind}, {way}")


def explain(panel):
    """Places the legend beside the panel, where it hides no line."""
    panel.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.02, 1))


def latency_figure(plt, results):
    figure, panels = plt.subplots(2, 2, figsize=(10, 6.5), sharex=True, sharey=True)
    for panel, (load, title) in zip(panels.flat, LOADS.items(), strict=True):
        for kind, ways in results["latency"].items():
            for way in ("shared", "lane", "apart"):
                if values := ways.get(way, {}).get(load):
                    distribution(panel, values, kind, way)
        panel.set(xscale="log", title=title.format(producers=results["producers"]))
        panel.grid(visible=True, alpha=0.3)
    for panel in panels[1]:
        panel.set_xlabel("ms until the controller's request is answered")
    for panel in panels[:, 0]:
        panel.set_ylabel("share of requests")
    explain(panels[0][-1])
    return figure


def logged_figure(plt, found):
    """Draws the distributions that the plane report has computed from the request logs."""
    loads = list(next(iter(found.values())))
    figure, panels = plt.subplots(1, len(loads), figsize=(10, 3.6), sharex=True, sharey=True)
    for panel, load in zip(panels, loads, strict=True):
        for kind, by_load in found.items():
            for way, values in by_load[load].items():
                distribution(panel, values, kind, way)
        panel.set(xscale="log", xlabel="ms inside the broker, by its request log", title=LOADS[load])
        panel.grid(visible=True, alpha=0.3)
    panels[0].set_ylabel("share of requests")
    explain(panels[-1])
    return figure


def consequences_figure(plt, found):
    figure, panels = plt.subplots(2, 3, figsize=(10.5, 6.5))
    variants = [(kind, way) for kind in found for way in ("shared", "apart")]
    for panel, (name, title) in zip(panels.flat, PANELS.items(), strict=True):
        for place, (kind, way) in enumerate(variants):
            values = found[kind][way].get(name, [])
            if not values:
                continue
            spread = [place + 0.3 * (number / max(len(values) - 1, 1) - 0.5) for number in range(len(values))]
            filled = COLOURS[kind] if way == "apart" else "none"
            panel.scatter(spread, values, s=22, facecolors=filled, edgecolors=COLOURS[kind])
            panel.hlines(statistics.median(values), place - 0.3, place + 0.3, color=COLOURS[kind])
        panel.set_yscale("symlog", linthresh=1)
        panel.set_ylim(-0.2, 3 * max([1, *panel.dataLim.intervaly]))
        panel.set_xticks(range(len(variants)), [f"{kind.replace(' Kafka', '')}\n{way}" for kind, way in variants])
        panel.tick_params(axis="x", labelsize=7.5)
        panel.set_title(title, fontsize=9)
        panel.grid(visible=True, axis="y", alpha=0.3)
    figure.suptitle("Hollow: without control.plane.listener.name. Filled: with it. Line: median.", fontsize=9)
    return figure


def storm_figure(plt, found):
    figure, panel = plt.subplots(figsize=(6, 3.6))
    for kind, ways in found.items():
        for way in ("quiet", "storm"):
            if ways[way]:
                distribution(panel, ways[way], kind, way)
    panel.set(xscale="log", xlabel="ms until the controller's request is answered", ylabel="share of requests")
    panel.grid(visible=True, alpha=0.3)
    explain(panel)
    return figure


# --- tables ---


def tables(results):
    """Returns all tables as Markdown."""
    made = [latency_table(results)]
    if any(results["logged"].values()):
        made.append(logged_table(results["logged"]))
    made += [consequences_table(results["consequences"]), storm_table(results["storm"])]
    return "\n\n".join([*made, shutdown_table(results["shutdown"])]) + "\n"


def table(head, rows):
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows)])


def latency_table(results):
    rows = []
    for kind, ways in results["latency"].items():
        rows += [
            [kind, way, *(latency_cell(ways[way].get(load)) for load in LOADS)]
            for way in ("shared", "lane", "apart") if way in ways
        ]  # fmt: skip
    titles = [title.format(producers=results["producers"]) for title in LOADS.values()]
    return table(["p50 / p99 in ms (requests)", "way", *titles], rows)


def latency_cell(values):
    if not values:
        return ""
    return f"{quantile(values, 0.5):.1f} / {quantile(values, 0.99):.1f} ({len(values)})"


def logged_table(found):
    rows = []
    for kind, by_load in found.items():
        ways = dict.fromkeys(way for ways in by_load.values() for way in ways)
        rows += [[kind, way, *(logged_cell(ways.get(way)) for ways in by_load.values())] for way in ways]
    loads = [LOADS[load] for load in next(iter(found.values()))]
    return table(["p50 / p99 inside the broker, ms", "way", *loads], rows)


def logged_cell(values):
    """Shows the values at 50 % and at 99 % of the requests."""
    return f"{values[50]:.1f} / {values[99]:.1f}" if values else ""


def consequences_table(found):
    variants = [(kind, way) for kind in found for way in ("shared", "apart")]
    rows = [
        [title, *(spread_cell(found[kind][way].get(name)) for kind, way in variants)] for name, title in PANELS.items()
    ]
    return table(["median (lowest - highest)", *(f"{kind}, {way}" for kind, way in variants)], rows)


def spread_cell(values):
    if not values:
        return ""
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} - {max(values):,.0f})"


def storm_table(found):
    rows = [
        [
            kind,
            latency_cell(ways["quiet"]),
            latency_cell(ways["storm"]),
            f"{statistics.median(ways['AlterPartition/s'] or [0]):,.0f}",
        ]
        for kind, ways in found.items()
    ]
    return table(["p50 / p99 in ms (requests)", "quiet", "AlterPartition storm", "AlterPartition/s"], rows)


def shutdown_table(found):
    names = list(dict.fromkeys(name for counts in found.values() for name in counts))
    return table(
        ["one controlled shutdown", *found],
        [[name, *(f"{counts[name]:,.0f}" for counts in found.values())] for name in names],
    )
