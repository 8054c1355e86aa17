"""The command line: `python -m retrylab run scenarios/`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from retrylab.assembly import Assembly
from retrylab.errors import LabError
from retrylab.explore import Proof, explore
from retrylab.judge import Verdict, judge_all
from retrylab.report import as_json, show_problems, table
from retrylab.scenario import Scenario, collect

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Plays Lambda's retry rules on your template.")


@app.command()
def run(
    scenarios: Annotated[Path, typer.Argument(help="Folder with scenario modules.")],
    assembly: Annotated[Path, typer.Option(help="Cloud assembly that `cdk synth` wrote.")] = Path("cdk.out"),
    only: Annotated[str, typer.Option(help="Play only scenarios whose name contains this.")] = "",
    trace: Annotated[
        str, typer.Option(help="Print the step-by-step story of scenarios whose name contains this.")
    ] = "",
    as_machine: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of everything random in a run.")] = 1,
    jobs: Annotated[int, typer.Option(min=0, help="Processes that play at once; 0 is one for each core.")] = 0,
) -> None:
    """Play scenarios. Exit status: 0 all as expected, 1 an expectation failed, 2 the lab could not play."""
    console = Console(stderr=as_machine, width=None if sys.stdout.isatty() else 160)
    try:
        chosen = _choose(collect(scenarios), only or trace)
        loaded = Assembly.load(assembly)
        verdicts = judge_all(chosen, loaded, seed=seed, jobs=jobs or os.cpu_count() or 1)
    except LabError as error:
        console.print(f"[red]the lab cannot play this:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        _leave(2)
    if as_machine:
        sys.stdout.write(json.dumps(as_json(verdicts), indent=2, default=str) + "\n")
    elif trace:
        for verdict in verdicts:
            _tell(console, verdict)
    else:
        console.print(table(verdicts))
    show_problems(console, verdicts)
    failed = sum(bool(verdict.problems) for verdict in verdicts)
    if not as_machine:
        console.print(f"{len(verdicts)} scenarios, {len(verdicts) - failed} as expected, {failed} not.")
    _leave(1 if failed else 0)


@app.command(name="explore")
def explore_command(
    scenarios: Annotated[Path, typer.Argument(help="Folder with scenario modules.")],
    assembly: Annotated[Path, typer.Option(help="Cloud assembly that `cdk synth` wrote.")] = Path("cdk.out"),
    only: Annotated[str, typer.Option(help="Explore only scenarios whose name contains this.")] = "",
    faults: Annotated[int, typer.Option(min=1, max=3, help="Faults in one run, at most.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of everything random in a run.")] = 1,
) -> None:
    """Cut, blind and refuse every call of the stories marked for it. Exit status as for `run`."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    broken = False
    try:
        chosen = [scenario for scenario in _choose(collect(scenarios), only) if scenario.explore]
        if not chosen:
            raise LabError(f"no scenario whose name contains {only!r} is marked with explore=True")
        loaded = Assembly.load(assembly)
        for scenario in chosen:
            proof = _explored(console, scenario, loaded, faults, seed)
            broken = broken or bool(proof.violations)
            _show_proof(console, proof, faults)
    except LabError as error:
        console.print(f"[red]the lab cannot play this:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        _leave(2)
    _leave(1 if broken else 0)


def _explored(console: Console, scenario: Scenario, assembly: Assembly, faults: int, seed: int) -> Proof:
    """Run an exploration to its end, or to Ctrl-C: then the proof so far is what there is."""
    proof = Proof(scenario)
    with console.status(scenario.name) as status:
        try:
            for proof in explore(scenario, assembly, faults=faults, seed=seed):
                status.update(f"{scenario.name}: {proof.schedules} schedules, {len(proof.violations)} violations")
        except KeyboardInterrupt:
            console.print(f"[yellow]stopped:[/] {scenario.name} is not explored to its end")
    return proof


def _show_proof(console: Console, proof: Proof, faults: int) -> None:
    mark = "[red]FAIL[/]" if proof.violations else "[green]ok[/]"
    console.print(
        f"{mark} {proof.scenario.source} {proof.scenario.name}: {proof.schedules} schedules of at most {faults} "
        f"fault(s), {len(proof.violations)} violations; faults at {len(proof.reached)} of {len(proof.calls)} calls",
        highlight=False,
        soft_wrap=True,
    )
    for violation in proof.violations:
        console.print(f"[red]FAIL[/] {escape(str(violation))}", highlight=False, soft_wrap=True)
    if proof.violations:
        console.print(proof.violations[0].story, markup=False, highlight=False, soft_wrap=True)


def _choose(scenarios: list[Scenario], part: str) -> list[Scenario]:
    chosen = [scenario for scenario in scenarios if part in scenario.name]
    if not chosen:
        names = "; ".join(scenario.name for scenario in scenarios)
        raise LabError(f"no scenario's name contains {part!r}; there are: {names}")
    return chosen


def _tell(console: Console, verdict: Verdict) -> None:
    for run, title in ((verdict.naive, "naive twin"), (verdict.guarded, "shared code")):
        if run is not None:
            heading = escape(f"({verdict.scenario.injected}) - {title}")
            console.print(f"[bold]{escape(verdict.scenario.name)}[/] {heading}", highlight=False)
            console.print(run.trace.story(), markup=False, highlight=False, soft_wrap=True)
            console.print(f"effects: {run.effects}; ended: {run.ended}\n", markup=False, highlight=False)


def _leave(status: int) -> None:
    """End the process at once: handlers that were cut stay suspended, and no interpreter shutdown may wake them."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
