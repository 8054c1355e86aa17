"""The table of cases and the guarantees: no case missing, every named test there, every example runs."""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from shared.body import parse_json_object
from shared.codec import from_json
from shared.invocation import invocation
from shared.key import IdempotencyKey, business_key
from shared.operation import Operation

ROOT = Path(__file__).parents[3]
TABLE = (ROOT / "docs" / "idempotency-cases.md").read_text()
GUARANTEES = (ROOT / "docs" / "guarantees.md").read_text()

GROUP_D = {
    *("D01", "D03", "D04", "D06", "D07", "D08", "D10", "D11", "D12", "D13", "D15", "D16", "D17", "D18", "D19"),
    *("D20", "D22", "D23", "D25", "D26", "D27", "D29", "D32", "D33", "D35", "D36", "D37", "D38", "D42"),
}
FACTS = {f"3.{number}" for number in range(1, 22)}
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TABLE.splitlines()
    if line.startswith("| ") and not line.startswith("| case ")
]


def test_no_case_and_no_fact_is_missing() -> None:
    named = {name for row in ROWS for name in re.findall(r"D\d\d|3\.\d+", row[0])}
    assert named == GROUP_D | FACTS


@pytest.mark.parametrize("where", sorted({row[3] for row in ROWS}))
def test_every_named_test_exists(where: str) -> None:
    found = re.fullmatch(r"`([a-z_/]+\.py)::(test_\w+)`( \*)?", where)
    assert found is not None, f"{where} names no test"
    path, name, beside_stock = found.groups()
    text = (ROOT / "tests" / path).read_text()
    assert f"def {name}(" in text
    if beside_stock:
        body = text.partition(f"def {name}(")[2].partition("\ndef ")[0]
        assert "side: str" in body.partition(")")[0], f"{name} does not play both sides"


def test_the_example_of_a_time_window_runs(context: Any, capsys: Any) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", GUARANTEES, re.DOTALL)
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(example, "docs/guarantees.md", "exec"), names)  # noqa: S102 - the example in the docs is the test
    with invocation(context):
        for hour in (21, 23, 22):  # UTC: before midnight in Berlin, after it, midnight itself
            names["remind"](names["reminder"]("c-1", datetime(2026, 6, 1, hour, tzinfo=UTC)))
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("reminded")]
    assert printed == ["reminded on 2026-06-01", "reminded on 2026-06-02"]
    with pytest.raises(ValueError, match="no zone"):
        names["reminder"]("c-1", datetime(2026, 6, 1))


@dataclass
class Lines:
    order_id: str
    lines: list[str] = field(default_factory=list)


def test_spacing_and_order_of_names_make_no_difference(context: Any) -> None:
    runs: list[int] = []

    def run(lines: Lines, key: IdempotencyKey) -> None:
        runs.append(1)

    effect = Operation("spacing/v1", key=business_key("orderId"), result=type(None)).effect(run)
    with invocation(context):
        for text in ('{"orderId":"1","lines":["a"]}', '{"lines": ["a"], "orderId": "1"}'):
            effect(from_json(Lines, parse_json_object(text, "body"), "Lines"))
    assert runs == [1]


def test_an_effect_that_changes_its_input_completes_its_own_record(context: Any, records: Any) -> None:
    def run(lines: Lines, key: IdempotencyKey) -> None:
        lines.order_id = "changed"
        lines.lines.append("changed")

    effect = Operation("changing/v1", key=business_key("orderId"), result=type(None)).effect(run)
    with invocation(context):
        effect(Lines("o-1"))
        effect(Lines("o-1"))
    assert records.only()["status"] == {"S": "COMPLETED"}
    assert records.only()["id"] == {"S": IdempotencyKey("changing/v1", ("o-1",)).record_id}
