"""Shows verdicts to people (a table) and to machines (JSON)."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from retrylab.judge import Run, Verdict, as_text
from retrylab.trace import duration


def table(verdicts: list[Verdict]) -> Table:
    """One row a scenario: what was injected, what came of it without and with idempotency."""
    shown = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for heading in ("", "source", "scenario", "injected"):
        shown.add_column(heading, overflow="fold", no_wrap=heading == "source")
    for heading in ("deliveries", "effects\nnaive", "effects\nshared code"):
        shown.add_column(heading, justify="right", no_wrap=True)
    shown.add_column("ended", overflow="fold")
    for heading in ("virtual\ntime", "real\ntime"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for verdict in verdicts:
        run, naive = verdict.guarded, verdict.naive
        harmful = naive is not None and naive.effects != run.effects
        naive_text = "-" if naive is None else as_text(naive.effects)
        shown.add_row(
            "[red]FAIL[/]" if verdict.problems else "[green]ok[/]",
            verdict.scenario.source,
            escape(verdict.scenario.name),
            escape(verdict.scenario.injected),
            str(sum(run.deliveries.values())),
            f"[red]{naive_text}[/]" if harmful else naive_text,
            as_text(run.effects),
            _ended(run),
            duration(run.virtual),
            f"{(run.real + (naive.real if naive else 0.0)) * 1000:.0f} ms",
        )
    return shown


def show_problems(console: Console, verdicts: list[Verdict]) -> None:
    for verdict in verdicts:
        for problem in verdict.problems:
            text = escape(f"{verdict.scenario.name}: {problem}")
            console.print(f"[red]FAIL[/] {text}", highlight=False, soft_wrap=True)


def as_json(verdicts: list[Verdict]) -> list[dict[str, Any]]:
    """Everything of the table, and the problems. Real times are left out: equal runs give equal output."""
    return [
        {
            "scenario": verdict.scenario.name,
            "source": verdict.scenario.source,
            "injected": verdict.scenario.injected,
            "ok": not verdict.problems,
            "problems": verdict.problems,
            "shared_code": _run(verdict.guarded),
            "naive": _run(verdict.naive) if verdict.naive else None,
        }
        for verdict in verdicts
    ]


def _run(run: Run) -> dict[str, Any]:
    return {
        "effects": run.effects,
        "deliveries": run.deliveries,
        "ended": run.ended,
        "virtual_seconds": round(run.virtual, 3),
        "trace": [step.line() for step in run.trace.steps if step.kind != "log"],
    }


def _ended(run: Run) -> str:
    places: dict[str, int] = {}
    for place in run.ended.values():
        name = place.rsplit("/", 1)[-1]
        places[name] = places.get(name, 0) + 1
    if len(places) == 1:
        return next(iter(places))
    return ", ".join(f"{count} {name}" for name, count in sorted(places.items()))
