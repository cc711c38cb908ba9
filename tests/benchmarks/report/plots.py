"""What was measured as plots: PNG files with units, targets, and the command that made them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import fill
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from tests.benchmarks.report.figures import LATENCY_TARGETS_MS, Flow, Results, into

_DOTS_PER_INCH: Final = 120
_INCHES: Final = (8.5, 5.0)
_WIDE_INCHES: Final = (13.0, 5.0)
_BAR: Final = 0.38
# Of the line below a plot that says where it is from.
_LETTERS_PER_INCH: Final = 18


def draw(results: Results, folder: Path) -> list[Path]:
    """Draw each plot that there are figures for; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    plots: dict[str, Callable[[Results], Figure | None]] = {
        "throughput-by-routers": by_routers,
        "cost-by-sessions": by_sessions,
        "throughput-beside-others": beside_others,
        "latency": latency,
    }
    drawn = []
    for name, plot in plots.items():
        if (figure := plot(results)) is not None:
            origin = fill(_origin(results), width=int(figure.get_figwidth() * _LETTERS_PER_INCH))
            figure.text(0.01, 0.01, origin, fontsize=7, color="0.35")
            figure.savefig(folder / f"{name}.png", dpi=_DOTS_PER_INCH)
            drawn.append(folder / f"{name}.png")
    return drawn


def by_routers(results: Results) -> Figure | None:
    """Draw the ratio to the bare loop by the number of routers, a panel for each sync of NATS."""
    flows = [flow for flow in results.flows if not flow.existing]
    syncs = list(dict.fromkeys(flow.sync for flow in flows))
    if not flows:
        return None
    figure, panels = _figure(max(len(syncs), 1))
    for panel, sync in zip(panels, syncs, strict=True):
        its = [flow for flow in flows if flow.sync == sync]
        for case in dict.fromkeys(flow.case for flow in its):
            _by_routers(panel, case, [flow for flow in its if flow.case == case])
        panel.set_xticks(sorted({flow.routers for flow in its}))
        panel.set_ylim(bottom=0)
        panel.axhline(1, color="0.6", linewidth=0.8)
        _label(
            panel,
            f"Throughput by routers, NATS sync: {sync}",
            "routers",
            "messages/s ÷ bare loop's messages/s",
        )
        panel.legend(title="case (target)", fontsize=8, title_fontsize=8)
    return figure


def _by_routers(panel: Axes, case: str, flows: Sequence[Flow]) -> None:
    ordered = sorted(flows, key=lambda flow: flow.routers)
    target = ordered[0].target
    named = case if target is None else f"{case} (≥ {target:.2f})"
    panel.errorbar(
        [flow.routers for flow in ordered],
        [flow.ratio.median for flow in ordered],
        [
            [flow.ratio.median - flow.ratio.least for flow in ordered],
            [flow.ratio.most - flow.ratio.median for flow in ordered],
        ],
        marker="o",
        capsize=3,
        label=named,
    )


def by_sessions(results: Results) -> Figure | None:
    """Draw what a message costs by how many sessions are there, and what it costs the bare loop."""
    if not (every := results.series()):
        return None
    figure, (panel,) = _figure(1)
    for case, active in every:
        flows = results.among(case, active)
        sessions = [flow.existing for flow in flows]
        (line,) = panel.plot(
            sessions,
            [1e6 / flow.per_second.median for flow in flows],
            marker="o",
            label=f"{case}, {into(active)}, 1 router",
        )
        panel.plot(
            sessions,
            [1e6 / flow.bare_per_second.median for flow in flows],
            marker=".",
            linestyle="--",
            linewidth=0.9,
            color=line.get_color(),
            label=f"bare loop beside {case}, {into(active)}",
        )
    panel.set_xscale("log")
    panel.set_ylim(bottom=0)
    _label(panel, "Cost of a message by sessions", "sessions that are there", "µs per message")
    panel.legend(fontsize=8)
    return figure


def beside_others(results: Results) -> Figure | None:
    """Draw the throughput of the bare loop, of routers, the naive worker and the reference."""
    bars: dict[str, float] = {}
    for flow in results.flows:
        if flow.routers == 1 and flow.sync == "default" and not flow.existing:
            bars[f"bare loop, {flow.case}"] = flow.bare_per_second.median
            bars[f"1 router, {flow.case}"] = flow.per_second.median
    for naive in results.naive:
        bars[f"naive worker, {naive.case}"] = naive.naive_per_second.median
    for reference in results.reference:
        bars[f"hermes-agent, {reference.sessions:,} sessions"] = reference.per_second
    if not (results.naive or results.reference):
        return None
    figure, (panel,) = _figure(1)
    drawn = panel.barh(list(bars), list(bars.values()), color=[_color(name) for name in bars])
    panel.bar_label(drawn, fmt="{:,.0f}", padding=3, fontsize=8)
    panel.set_xscale("log")
    panel.margins(x=0.15)
    panel.invert_yaxis()
    panel.tick_params(axis="y", labelsize=8)
    _label(panel, "Throughput beside others", "messages/s (logarithmic)", "")
    return figure


def _color(name: str) -> str:
    colors = {"bare": "0.7", "1 ro": "tab:blue", "naiv": "tab:orange", "herm": "tab:red"}
    return colors[name[:4]]


def latency(results: Results) -> Figure | None:
    """Draw p50 and p99 at each rate, the bare loop's beside them."""
    if not results.latencies:
        return None
    figure, (panel,) = _figure(1)
    names, turn, bare, targets = [], [], [], []
    for its in results.latencies:
        for percentile in ("p50", "p99"):
            names.append(f"{its.per_second:,}/s\n{percentile}")
            turn.append(getattr(its.turn_ms, percentile))
            bare.append(getattr(its.bare_ms, percentile))
            targets.append(LATENCY_TARGETS_MS.get(its.per_second, {}).get(percentile))
    places = range(len(names))
    left = panel.bar(
        [place - _BAR / 2 for place in places], turn, _BAR, label="1 router, to a turn"
    )
    right = panel.bar(
        [place + _BAR / 2 for place in places], bare, _BAR, label="bare loop", color="0.7"
    )
    for drawn in (left, right):
        panel.bar_label(drawn, fmt="{:.1f}", padding=2, fontsize=8)
    for place, target in zip(places, targets, strict=True):
        if target is not None:
            panel.hlines(target, place - _BAR, place + _BAR, colors="tab:red")
    panel.plot([], [], color="tab:red", label="target: below")
    panel.set_xticks(list(places), names)
    _label(panel, "Time from acknowledgement by the log", "rate and percentile", "milliseconds")
    panel.legend(fontsize=8, loc="upper left")
    return figure


def _figure(panels: int) -> tuple[Figure, list[Axes]]:
    layout = ConstrainedLayoutEngine(rect=(0, 0.07, 1, 0.93))
    figure = Figure(figsize=_INCHES if panels == 1 else _WIDE_INCHES, layout=layout)
    return figure, [figure.add_subplot(1, panels, number + 1) for number in range(panels)]


def _label(panel: Axes, title: str, across: str, up: str) -> None:
    panel.set_title(title, fontsize=11)
    panel.set_xlabel(across)
    panel.set_ylabel(up)
    panel.grid(visible=True, linewidth=0.3)


def _origin(results: Results) -> str:
    about = ", ".join(f"{name} {value}" for name, value in results.about.items())
    return f"{results.command}   {about}"
