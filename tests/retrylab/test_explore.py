"""Exploration: every call of a story is cut, blinded and refused, and planted faults are found."""

from pathlib import Path
from typing import Any

import pytest

from retrylab import Effect, Expect, Lab, scenario
from retrylab.explore import Proof, explore
from tests.retrylab.sample_app import SampleApp, queue_resources
from tests.retrylab.test_scenarios import command

CHARGES = Effect("charge", "Charges", lambda item: str(item["reference"]))

KEYED = """
def handler(event, context):
    order = seen(event["Records"][0])
    charge(order, key=order)
"""
CHECK_THEN_ACT = """
def handler(event, context):
    order = seen(event["Records"][0])
    if "Item" in dynamodb.get_item(TableName=TABLE, Key={"id": {"S": f"done-{order}"}}, ConsistentRead=True):
        return
    charge(order)
    dynamodb.put_item(TableName=TABLE, Item={"id": {"S": f"done-{order}"}, "reference": {"S": "done"}})
"""
MARK_THEN_ACT = """
def handler(event, context):
    order = seen(event["Records"][0])
    if "Item" in dynamodb.get_item(TableName=TABLE, Key={"id": {"S": f"done-{order}"}}, ConsistentRead=True):
        return
    dynamodb.put_item(TableName=TABLE, Item={"id": {"S": f"done-{order}"}, "reference": {"S": "done"}})
    charge(order)
"""


def story(**effects: int) -> Any:
    @scenario(
        source="queue",
        injected="nothing",
        effect=CHARGES,
        expect=Expect(effects=effects, ended={"o": "completed"}),
        explore=True,
    )
    def one_order(lab: Lab) -> None:
        lab.queue("Orders").send({"order": "o"}, "o")

    return one_order


def explored(sample: SampleApp, code: str, faults: int, **effects: int) -> Proof:
    *_, proof = explore(story(**effects), sample.assembly(queue_resources(), code), faults=faults)
    return proof


def test_a_keyed_effect_survives_every_pair_of_faults(sample: SampleApp) -> None:
    proof = explored(sample, KEYED, 2, o=1)
    assert proof.violations == []
    # One call: crash before or after, hang, lost response, refusal. A cut or a refusal is followed by one more call of
    # the same five kinds, a lost response by the SDK's repeat, whose "crash before" equals the crash after the first.
    assert proof.schedules > 1 + 5 + 3 * 5
    assert len(proof.unreached) == 1, "what a third attempt would call lies behind the last fault"


def test_a_check_before_the_effect_and_a_mark_after_it_repeats_the_effect(sample: SampleApp) -> None:
    proof = explored(sample, CHECK_THEN_ACT, 1, o=1, done=1)
    found = {str(violation).split(":")[0] for violation in proof.violations}
    assert "crash after PutItem App/Charges of App/Worker attempt 1" in found
    assert any("o: 2 x charge, wanted 1" in str(violation) for violation in proof.violations)
    assert "App/Worker attempt 2" in proof.violations[0].story


def test_a_mark_before_the_effect_loses_the_effect_although_every_event_completes(sample: SampleApp) -> None:
    proof = explored(sample, MARK_THEN_ACT, 1, o=1, done=1)
    assert any("o: 0 x charge, wanted 1" in str(violation) for violation in proof.violations)


def test_equal_explorations_try_equal_schedules(sample: SampleApp) -> None:
    first, second = (explored(sample, CHECK_THEN_ACT, 1, o=1, done=1) for _ in range(2))
    assert first.schedules == second.schedules
    assert [str(v) for v in first.violations] == [str(v) for v in second.violations]
    assert first.violations[0].story == second.violations[0].story


@pytest.mark.parametrize(("code", "status"), [(KEYED, 0), (CHECK_THEN_ACT, 1)])
def test_the_command_explores_the_stories_that_are_marked(
    sample: SampleApp, tmp_path: Path, code: str, status: int
) -> None:
    sample.assembly(queue_resources(), code)
    stories = tmp_path / "stories"
    stories.mkdir()
    (stories / "story.py").write_text(
        "from retrylab import Effect, Expect, scenario\n"
        "CHARGES = Effect('charge', 'Charges', lambda item: str(item['reference']),\n"
        "                 lambda before, after: after['reference'] == 'o' and before is None)\n"
        "@scenario(source='queue', injected='nothing', effect=CHARGES, expect=Expect(effects={'o': 1}), explore=True)\n"
        "def one_order(lab):\n"
        "    lab.queue('Orders').send({'order': 'o'}, 'o')\n"
    )
    done = command(stories, verb="explore")
    assert done.returncode == status, done.stdout + done.stderr
    assert "queue one order: " in done.stdout
    assert ("FAIL crash after PutItem" in done.stdout) is bool(status)
