"""Plays scenarios and judges what came of them: expectations first, then the invariants that always hold."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from retrylab.assembly import Assembly
from retrylab.clock import real_perf_counter
from retrylab.errors import LabError
from retrylab.lab import Lab
from retrylab.parameters import Parameters
from retrylab.scenario import Effect, Expect, Scenario
from retrylab.trace import Trace
from retrylab.wire import Write

UNRESOLVED = ("INPROGRESS", "STARTED", "PARKED")
"""What an idempotency record says while the outcome of its effect is not stored."""


@dataclass
class Run:
    """One play of a scenario. Times in seconds; `problems` is empty when everything is as it must be."""

    effects: dict[str, int]
    deliveries: dict[str, int]
    ended: dict[str, str]
    virtual: float
    real: float
    trace: Trace
    problems: list[str] = field(default_factory=list)


@dataclass
class Verdict:
    scenario: Scenario
    guarded: Run
    naive: Run | None

    @property
    def problems(self) -> list[str]:
        naive = [f"naive twin: {text}" for text in self.naive.problems] if self.naive else []
        return self.guarded.problems + naive


def judge(scenario: Scenario, assembly: Assembly, *, seed: int, parameters: Parameters | None = None) -> Verdict:
    """Play a scenario with the function's own code and, when it has one, with its naive twin."""
    guarded, _ = play(scenario, assembly, scenario.expect, seed=seed, parameters=parameters)
    naive = None
    if scenario.naive is not None:
        naive, _ = play(scenario, assembly, scenario.naive, seed=seed, parameters=parameters, twin=True)
    return Verdict(scenario, guarded, naive)


def judge_all(scenarios: list[Scenario], assembly: Assembly, *, seed: int, jobs: int) -> list[Verdict]:
    """Judge many scenarios, on `jobs` processes where the system can fork. Runs are independent and deterministic, so
    the verdicts are the same on any number. A worker's end also discards the handlers that were cut in it."""
    if jobs < 2 or len(scenarios) < 2 or "fork" not in multiprocessing.get_all_start_methods():
        return [judge(scenario, assembly, seed=seed) for scenario in scenarios]
    _Work.items = [(scenario, assembly, seed) for scenario in scenarios]
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        runs = pool.map(_judge_one, range(len(scenarios)), chunksize=1)
    verdicts = []
    for scenario, result in zip(scenarios, runs, strict=True):
        if isinstance(result, LabError):
            raise result
        guarded, naive = result
        verdicts.append(Verdict(scenario, guarded, naive))
    return verdicts


class _Work:
    """What forked workers find in their memory: scenarios hold functions, which cannot be sent."""

    items: ClassVar[list[tuple[Scenario, Assembly, int]]] = []


def _judge_one(index: int) -> tuple[Run, Run | None] | LabError:
    scenario, assembly, seed = _Work.items[index]
    try:
        verdict = judge(scenario, assembly, seed=seed)
    except LabError as error:
        return type(error)(str(error))
    return verdict.guarded, verdict.naive


def play(
    scenario: Scenario,
    assembly: Assembly,
    expect: Expect,
    *,
    seed: int,
    parameters: Parameters | None = None,
    twin: bool = False,
    prepare: Callable[[Lab], None] | None = None,
) -> tuple[Run, Lab]:
    """Play a scenario once and judge it by `expect`. `prepare` may add faults before. Gives the finished lab, too."""
    begun = real_perf_counter()
    with Lab(assembly, seed=seed, parameters=parameters) as lab:
        if twin and scenario.twin is not None:
            lab.replace_code(scenario.twin.function, scenario.twin.folder, scenario.twin.handler)
        if prepare is not None:
            prepare(lab)
        try:
            scenario.play(lab)
            lab.run()
        except LabError:
            raise
        except (Exception, SystemExit) as error:
            raise LabError(f"scenario {scenario.name!r} ({scenario.where}) raised {error!r}") from error
        effects = effects_of(lab, scenario.effect)
        run = Run(
            effects=dict(Counter(scenario.effect.key(write.after or write.before or {}) for write in effects)),
            deliveries=_sum(lab, lambda event: event.deliveries),
            ended={event.label: event.ended or event.state for event in lab.ledger.events},
            virtual=lab.last_change,
            real=0.0,
            trace=lab.trace,
        )
        run.problems += _against(expect, run, lab, effects, scenario.effect)
        if not twin:
            run.problems += invariants(lab, scenario.records)
    run.real = real_perf_counter() - begun
    return run, lab


def effects_of(lab: Lab, effect: Effect) -> list[Write]:
    """The writes that count as this effect, in order."""
    table = lab.table(effect.table).path
    return [write for write in lab.writes if write.table == table and effect.counts(write.before, write.after)]


def invariants(lab: Lab, records: str | None) -> list[str]:
    """What must hold in every run, whatever was injected (DESIGN section 7's list, as far as it is modelled)."""
    problems = [f"{event.label} is lost: {event.why}" for event in lab.ledger.events if event.state == "lost"]
    problems += [
        f"{event.label} never came to an end: neither done nor on a failure path"
        for event in lab.ledger.events
        if event.state == "waiting"
    ]
    problems += lab.findings
    problems += [f"the scenario is empty: the fault `{fault}` never struck" for fault in lab.faults.unmet()]
    problems += [
        f"the scenario is empty: no invoke met the throttling of {name}" for name in lab.service.throttles_unmet
    ]
    if not lab.ledger.events:
        problems.append("the scenario is empty: it sent no event")
    if records is not None:
        failed = sum(event.state == "failure-path" for event in lab.ledger.events)
        open_ids = [str(item["id"]) for item in lab.items(records) if item.get("status") in UNRESOLVED]
        if len(open_ids) > failed:
            problems.append(
                f"{len(open_ids)} record(s) still in progress but only {failed} event(s) on a failure path: "
                + ", ".join(open_ids)
            )
    return problems


def _against(expect: Expect, run: Run, lab: Lab, effects: list[Write], effect: Effect) -> list[str]:
    problems = []
    for key in sorted({*expect.effects, *run.effects}):
        wanted, found = expect.effects.get(key, 0), run.effects.get(key, 0)
        if wanted != found:
            problems.append(f"{key}: {found} x {effect.name}, wanted {wanted}{_diagnosis(key, effects, effect)}")
    for label, wanted_end in (expect.ended or {}).items():
        found_end = run.ended.get(label, "never sent")
        if not f"/{found_end}".endswith(f"/{wanted_end}"):
            problems.append(f"{label} ended at {found_end}, wanted {wanted_end}")
    for label, wanted in (expect.deliveries or {}).items():
        if run.deliveries.get(label) != wanted:
            problems.append(f"{label} was delivered {run.deliveries.get(label)} times, wanted {wanted}")
    for attribute, wanted in (expect.calls or {}).items():
        found = sum(int(item.get("calls", 0)) for item in lab.items(effect.table) if effect.key(item) == attribute)
        if found != wanted:
            calls = [write for write in lab.writes if write.table == lab.table(effect.table).path]
            told = _diagnosis(attribute, calls, effect)
            problems.append(f"{attribute}: the provider was called {found} times, wanted {wanted}{told}")
    return problems


def _diagnosis(key: str, writes: list[Write], effect: Effect) -> str:
    """Which attempts wrote, and whether each had won a conditional write (a claim) before it."""
    mine = [write for write in writes if effect.key(write.after or write.before or {}) == key]
    if not mine:
        return ""
    told = "; ".join(
        f"{write.attempt} at {write.at:.1f} s ({'after' if write.claimed else 'WITHOUT'} a claim)" for write in mine
    )
    return f": {told}"


def _sum(lab: Lab, value: Any) -> dict[str, int]:
    total: Counter[str] = Counter()
    for event in lab.ledger.events:
        total[event.label] += value(event)
    return dict(total)


def as_text(counts: Mapping[str, int]) -> str:
    """Effects as a person reads them: `2` for one business key, `9 x 1` for nine keys with one each."""
    if len(counts) <= 1:
        return str(next(iter(counts.values()), 0))
    totals = Counter(counts.values())
    return ", ".join(f"{number} x {count}" for count, number in sorted(totals.items()))
