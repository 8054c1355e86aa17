"""Real faults, fed to the real handlers: the cases of groups A, B and C that are events, and duplicates.

A case is played, or it stands in NOT_OURS with the reason; the audit at the end finds what is in neither.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest

from charge_order.handler import handler as charge_order
from index_order.handler import handler as index_order
from send_receipt.handler import handler as send_receipt
from shared.errors import InProgressError, ShapeError, WrongSourceError

FOLDER = Path(__file__).parent / "field_cases"

# Kind `event` in groups A, B and C of the catalogue, then the scenarios that are sequences of events.
EVENT_CASES = {
    *("A04", "A05", "A06", "A07", "A08", "A09", "A12", "A14", "A23", "A24", "A26"),
    *("B11", "B14", "B15", "B25"),
    *("C09", "C11", "C12", "C13", "C16", "C17", "C22"),
    *("A18", "A31", "B13", "B16", "C14", "C20"),
}

# Cases without an input file, played by the test of this name.
ELSEWHERE = {
    "A04": "charge_order/test_charge_order.py::test_a_message_without_id_fails_the_batch_before_any_effect",
    "A07": "charge_order/test_charge_order.py::test_another_shape_is_refused_by_name",
    "A08": "charge_order/test_charge_order.py::test_all_messages_failing_is_reported_not_raised",
    "A12": "charge_order/test_charge_order.py::test_nothing_is_remembered_between_invocations",
    "B14": "shared/test_operation.py::test_two_parts_of_a_detail_make_one_key",
}

NOT_OURS = {
    ("B14", "two envelope ids and times, same business detail"): "keyed by interactionId, not by an order",
    ("B14", "same id, different type is NOT a duplicate"): "keyed by interactionId, not by an order",
    ("B25", "S3 notification repeated, equal sequencer, other eventTime"): "no function here reads S3",
    ("B21", "async destination, age exceeded before any run"): "a failure record, read by a redrive tool",
    ("B11", "function DLQ message"): "no function here has a DLQ of its own",
    ("B11", "rule DLQ message (delivery failure)"): "a failure record, read by a redrive tool",
    ("C22", "table stream destination, no data"): "our stream's failure records go to S3 with their payload",
}


def cases() -> list[dict[str, Any]]:
    found = []
    for path in sorted(FOLDER.glob("*.json")):
        found += [{**case, "file": path.name} for case in json.loads(path.read_text())["cases"]]
    return found


def failed(response: Any) -> list[str]:
    return [failure["itemIdentifier"] for failure in response["batchItemFailures"]]


@dataclass(frozen=True)
class Stage:
    """The handlers with what they touch."""

    context: Any
    provider: Any
    records: Any
    view: Any
    output: Any
    environment: Any

    def effects(self) -> list[str]:
        return sorted(self.provider.effects.elements())


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> Stage:
    return Stage(**{field.name: request.getfixturevalue(field.name) for field in fields(Stage)})


def queue_batch(stage: Stage, case: dict[str, Any]) -> None:
    """One batch: exactly the listed messages are reported, each good order is charged once."""
    expect = case["expect"]
    assert failed(charge_order(case["input"], stage.context)) == expect["reported"]
    if "effects" in expect:
        assert stage.effects() == expect["effects"]
    assert expect.get("effect_count", len(stage.effects())) == len(stage.effects())


def queue_overlap(stage: Stage, case: dict[str, Any]) -> None:
    """The second delivery arrives while the first one's provider call runs; a third comes after."""
    first, second = case["input"]
    responses: list[Any] = []
    stage.provider.before = lambda: responses.append(charge_order(second, stage.context)) if not responses else None
    assert failed(charge_order(first, stage.context)) == []
    assert failed(responses[0]) == case["expect"]["second_reported"]
    assert failed(charge_order(second, stage.context)) == []
    assert len(stage.effects()) == case["expect"]["effect_count"]
    assert stage.output().outcomes == ["in-progress", "executed", "replayed"]


def queue_refused(stage: Stage, case: dict[str, Any]) -> None:
    """A FIFO queue or another source: refused whole, nothing charged."""
    event = case["input"]
    if event == "same event as A09":
        event = next(other["input"] for other in cases() if other["case"] == "A09")
    with pytest.raises(WrongSourceError):
        charge_order(event, stage.context)
    assert stage.effects() == []


def async_events(stage: Stage, case: dict[str, Any]) -> None:
    """Events one by one; with `advance_seconds` the lifetimes of record and key end in between."""
    for number, event in enumerate(case["input"]):
        if number and case.get("advance_seconds"):
            stage.records.end_lifetime()
            stage.provider.answers.clear()
        send_receipt(event, stage.context)
    assert len(stage.effects()) == case["expect"]["effect_count"]


def async_overlap(stage: Stage, case: dict[str, Any]) -> None:
    """The second event arrives while the first one's provider call runs: it raises and is delivered again."""
    first, second = case["input"]
    raised: list[Exception] = []

    def deliver_second() -> None:
        if not raised:
            with pytest.raises(InProgressError) as caught:
                send_receipt(second, stage.context)
            raised.append(caught.value)

    stage.provider.before = deliver_second
    send_receipt(first, stage.context)
    send_receipt(second, stage.context)
    assert len(raised) == 1
    assert len(stage.effects()) == case["expect"]["effect_count"]


def failure_record(stage: Stage, case: dict[str, Any]) -> None:
    """A failure record is no event; what it kept is."""
    with pytest.raises(WrongSourceError):
        send_receipt(case["input"], stage.context)
    send_receipt(case["input"][case["expect"]["original"]], stage.context)
    assert stage.effects() == ["order-1"]


def ttl_deletes(stage: Stage, case: dict[str, Any]) -> None:
    """TTL deletes by mark or by attribute and user deletes are told apart; all leave the view."""
    stage.environment.setenv("ORDERS_TTL_ATTRIBUTE", "expiration")
    assert failed(index_order(case["input"], stage.context)) == []
    kinds = [line["change"] for line in stage.output().logs]
    expired = [number for number, kind in enumerate(kinds, 1) if kind == "expired"]
    assert expired == ([1, 3] if case["case"] == "C11" else case["expect"]["handled"])
    assert stage.view.only()["removed"] == {"BOOL": True}


def keys_only(stage: Stage, case: dict[str, Any]) -> None:
    """The error says which image is absent and names the view type."""
    with pytest.raises(ShapeError):
        index_order(case["input"], stage.context)
    reason = stage.output().logs[-1]["reason"]
    assert "no NewImage" in reason
    assert "StreamViewType is KEYS_ONLY" in reason


def stream_batches(stage: Stage, case: dict[str, Any]) -> None:
    """Batches in order: nothing reported, the newest version is in the view."""
    batches = case["input"] if isinstance(case["input"], list) else [case["input"]]
    for event in batches:
        assert failed(index_order(event, stage.context)) == []
    expect, seen = case["expect"], stage.output()
    if "final_version" in expect:
        assert stage.view.only()["version"]["N"] == str(expect["final_version"])
    applied = seen.outcomes.count("applied")
    assert applied == expect.get("effect_count", len(expect["applied"]) if "applied" in expect else applied)


def typed_values(stage: Stage, case: dict[str, Any]) -> None:
    """Numbers, sets, lists and maps arrive as such; binary stays binary."""
    assert failed(index_order(case["input"], stage.context)) == []
    item = stage.view.only()
    assert float(item["amount"]["N"]) == 10
    assert sorted(item["tags"]["SS"]) == ["a", "b"]
    assert item["blob"] == {"B": b"\x00\x01"}
    assert item["lines"] == {"L": [{"M": {"sku": {"S": "x"}, "qty": {"N": "2"}}}]}


PLAY: dict[str, Callable[[Stage, dict[str, Any]], None]] = {
    "A05": queue_batch,
    "A06": queue_batch,
    "A09": queue_refused,
    "A14": queue_refused,
    "A18": queue_overlap,
    "A23": queue_batch,
    "A24": queue_batch,
    "A26": queue_batch,
    "A31": queue_batch,
    "B11": failure_record,
    "B13": async_overlap,
    "B15": async_events,
    "B16": async_events,
    "C09": queue_refused,
    "C11": ttl_deletes,
    "C12": ttl_deletes,
    "C13": stream_batches,
    "C14": keys_only,
    "C16": typed_values,
    "C17": stream_batches,
    "C20": stream_batches,
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"{case['case']}-{case['name']}".replace(" ", "_"))
        for case in cases()
        if (case["case"], case["name"]) not in NOT_OURS
    ],
)
def test_field_case(case: dict[str, Any], stage: Stage) -> None:
    PLAY[case["case"]](stage, case)


def test_no_case_is_silently_missing() -> None:
    present = {(case["case"], case["name"]) for case in cases()}
    assert NOT_OURS.keys() <= present, "a reason for a case that is not there"
    accounted = {*PLAY, *ELSEWHERE, *(case for case, _ in NOT_OURS)}
    assert accounted >= EVENT_CASES
    assert {case for case, name in present if (case, name) not in NOT_OURS} == {*PLAY}


@pytest.mark.parametrize("where", ELSEWHERE.values())
def test_every_named_test_exists(where: str) -> None:
    file, _, name = where.partition("::")
    assert f"def {name}(" in (Path(__file__).parent / file).read_text()
