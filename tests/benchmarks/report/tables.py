"""What was measured as one table, for the terminal and for a document."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

from rich.table import Table

from tests.benchmarks.report.figures import (
    LATENCY_TARGETS_MS,
    MOST_GROWTH,
    NAIVE_TIMES,
    PIECE_SERVER_TARGETS,
    PIECE_TARGETS_MS,
    REFERENCE_SESSIONS,
    REFERENCE_TIMES,
    Failure,
    Flow,
    Latency,
    LiveTurns,
    Naive,
    Percentiles,
    Reading,
    Results,
    Spread,
    into,
)

BEGIN: Final = '<!-- figures: written by `make bench ARGS="--again --markdown"` -->'
END: Final = "<!-- end of the figures -->"
HEADINGS: Final = (
    "what",
    "setup",
    "figure",
    "bare loop or other",
    "ratio",
    "range",
    "target",
    "CPU µs/message",
    "commits/message",
    "commits/batch",
    "syncs/commit",
)
# 95 of a hundred reads take no longer, in milliseconds, and the p99 of turns rises no more.
_READ_TARGETS_MS: Final = {"list": 50.0, "search": 100.0}
_READING_TIMES: Final = 1.5


@dataclass(frozen=True, slots=True)
class Row:
    """One line: what was measured, what is compared, and what it cost.

    Attributes:
        is_met: The target; where there is none it counts as met.
    """

    what: str
    setup: str
    figure: str
    other: str = ""
    ratio: str = ""
    spread: str = ""
    target: str = ""
    cpu: str = ""
    commits: str = ""
    batch: str = ""
    syncs: str = ""
    is_met: bool = True

    @property
    def cells(self) -> tuple[str, ...]:
        """The texts under the headings."""
        return astuple(self)[: len(HEADINGS)]


def rows(results: Results) -> Iterator[Row]:
    """Yield everything that was measured."""
    yield from map(_flow, results.flows)
    yield from _growths(results)
    yield from map(_naive, results.naive)
    yield from _references(results)
    for latency in results.latencies:
        yield from _latency(latency)
    if results.reading is not None:
        yield from _reading(results.reading)
    for live in results.live_turns:
        yield from _live_turns(live)
    yield from map(_failure, results.failures)


def _flow(flow: Flow) -> Row:
    setup = [f"{flow.routers} router" + ("s" if flow.routers > 1 else ""), f"sync {flow.sync}"]
    meaning = flow.meaning
    if flow.existing:
        meaning = into(flow.active)
        setup.append(f"{flow.existing:,} sessions")
    target, costs = flow.target, flow.costs
    return Row(
        f"{flow.case}: {meaning}",
        ", ".join(setup),
        _rate(flow.per_second.median),
        _rate(flow.bare_per_second.median),
        f"{flow.ratio.median:.2f}",
        _ends(flow.ratio),
        "" if target is None else f"≥ {target:.2f}",
        ", ".join(f"{name} {us:.0f}" for name, us in costs.cpu_us.items()),
        f"{costs.commits:.4f}",
        f"{costs.commits_per_batch:.2f} of {costs.batch:.0f}",
        f"{costs.syncs:.2f}",
        is_met=target is None or flow.ratio.median >= target,
    )


def _growths(results: Results) -> Iterator[Row]:
    for case, active in results.series():
        growth, among = results.growth(case, active), results.among(case, active)
        if growth is not None:
            setup = f"from {among[0].existing:,} to {among[-1].existing:,} sessions"
            yield Row(
                f"{case}: a message {into(active)} costs more by",
                setup,
                f"{growth:+.0%}",
                target=f"< {MOST_GROWTH:.0%}",
                is_met=growth < MOST_GROWTH,
            )


def _naive(naive: Naive) -> Row:
    return Row(
        f"{naive.case}: beside the naive worker",
        f"{naive.routers} router{'s' * (naive.routers > 1)}, sync default",
        _rate(naive.router_per_second.median),
        _rate(naive.naive_per_second.median),
        f"{naive.times.median:.1f} times",
        _ends(naive.times, ".1f"),
        f"≥ {NAIVE_TIMES:.0f} times",
        is_met=naive.times.median >= NAIVE_TIMES,
    )


def _references(results: Results) -> Iterator[Row]:
    ours = results.compared_with_reference()
    for reference in results.reference:
        times = None if ours is None else ours.per_second.median / reference.per_second
        is_judged = times is not None and reference.sessions == REFERENCE_SESSIONS
        yield Row(
            "busy: beside the session store of hermes-agent",
            f"{reference.sessions:,} sessions in it",
            "" if ours is None else _rate(ours.per_second.median),
            _rate(reference.per_second),
            "" if times is None else f"{times:.0f} times",
            target=f"≥ {REFERENCE_TIMES:.0f} times" if is_judged else "",
            is_met=times is None or not is_judged or times >= REFERENCE_TIMES,
        )


def _latency(latency: Latency) -> Iterator[Row]:
    targets = LATENCY_TARGETS_MS.get(latency.per_second, {})
    for name in ("p50", "p99"):
        turn, bare = getattr(latency.turn_ms, name), getattr(latency.bare_ms, name)
        target = targets.get(name)
        yield Row(
            f"time to the notification of a turn, {name}",
            f"{latency.per_second:,} messages/s"
            + (f", {latency.missing} never came" if latency.missing else ""),
            _ms(turn),
            _ms(bare),
            f"{turn / bare:.1f} times",
            target="" if target is None else f"< {_ms(target)}",
            is_met=not latency.missing and (target is None or turn < target),
        )


def _reading(reading: Reading) -> Iterator[Row]:
    setup = "10,000 sessions with 200,000 rows, 300 messages/s"
    for what, its in reading.reads_ms.items():
        target = _READ_TARGETS_MS[what]
        yield Row(
            f"{what}, one page: p95",
            setup,
            _ms(its.p95),
            spread=_range(its),
            target=f"< {_ms(target)}",
            is_met=its.p95 < target,
        )
    times = reading.beside_ms.p99 / reading.alone_ms.p99
    yield Row(
        "time to a turn beside these reads, p99",
        setup,
        _ms(reading.beside_ms.p99),
        f"{_ms(reading.alone_ms.p99)}, nobody reads",
        f"{times:.2f} times",
        _range(reading.beside_ms),
        f"< {_READING_TIMES} times",
        is_met=times < _READING_TIMES,
    )


def _live_turns(live: LiveTurns) -> Iterator[Row]:
    setup = f"{live.turns:,} turns, {live.asked_per_second:,} pieces/s"
    if live.missing:
        setup += f", {live.missing:,} never came"
    target = PIECE_TARGETS_MS.get(live.asked_per_second)
    yield Row(
        "live turns: a piece from worker to adapter, p99",
        setup,
        _ms(live.took_ms.p99),
        spread=_range(live.took_ms),
        target="" if target is None else f"< {_ms(target)}",
        is_met=target is None or live.took_ms.p99 < target,
    )
    most = PIECE_SERVER_TARGETS.get(live.asked_per_second)
    yield Row(
        "live turns: processors of nats-server at this rate",
        f"{setup}; {live.per_second:,.0f}/s were shown",
        f"{live.server_processors:.2f}",
        f"{live.processors['router']:.2f}, a router beside it",
        target="" if most is None else f"< {most:.1f}",
        cpu=f"nats {live.server_us:.0f}",
        is_met=most is None or live.server_processors < most,
    )


def _failure(failure: Failure) -> Row:
    return Row(failure.what, "not measured", failure.error, is_met=False)


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}/s"


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:.1f} ms"


def _ends(spread: Spread, form: str = ".2f") -> str:
    return f"{spread.least:{form}} to {spread.most:{form}}"


def _range(its: Percentiles) -> str:
    return f"{its.p50:.1f} (p50) to {its.max:.1f} ms"


def as_table(results: Results) -> Table:
    """Return the table for a terminal; what misses its target is red."""
    table = Table(title=_caption(results), title_justify="left")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in HEADINGS[:2] else "right")
    for row in rows(results):
        table.add_row(*row.cells, style=None if row.is_met else "red")
    return table


def as_markdown(results: Results, plots: Sequence[Path], folder: Path) -> str:
    """Return the figures as a part of a document in `folder`."""
    lines = [
        f"Made by `{results.command}`: {_machine(results)}.",
        "",
        _line(HEADINGS),
        _line(["---", "---", *["---:" for _ in HEADINGS[2:]]]),
    ]
    for row in rows(results):
        cells = list(row.cells)
        if row.target and not row.is_met:
            cells[6] += " **missed**"
        lines.append(_line(cells))
    for plot in plots:
        title = plot.stem.replace("-", " ").capitalize()
        lines += ["", f"![{title}]({plot.relative_to(folder).as_posix()})"]
    return "\n".join(lines)


def paste(document: Path, results: Results, plots: Sequence[Path]) -> None:
    """Put the figures between the marks of a document, in the place of those before.

    Raises:
        ValueError: The document does not have the marks.
    """
    before, begin, rest = document.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{document} has no place for figures")
    figures = as_markdown(results, plots, document.parent)
    document.write_text(f"{before}{BEGIN}\n\n{figures}\n\n{END}{after}", "utf-8")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _caption(results: Results) -> str:
    return f"{results.command}: {_machine(results)}"


def _machine(results: Results) -> str:
    return ", ".join(f"{name} {value}" for name, value in results.about.items())
