"""CloudFormation accepts the graph: no cycle between stacks, none between the resources of one template."""

from __future__ import annotations

import json
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any

import pytest

import app
from stacks.settings import Settings
from tests.stacks.synthesis import PRODUCTION, Stacks, new_app

VARIANTS = ["sandbox", "production", "keyed", "aliased"]

Graph = dict[str, set[str]]


@pytest.fixture(params=VARIANTS)
def stacks(request: pytest.FixtureRequest) -> Stacks:
    return dict(request.getfixturevalue(request.param))


def references(value: Any) -> Iterator[str]:
    """The logical ids a value refers to, `Fn::Sub` included."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "Ref":
                yield inner
            elif key == "Fn::GetAtt":
                yield inner[0] if isinstance(inner, list) else inner.partition(".")[0]
            elif key == "Fn::Sub":
                text = inner if isinstance(inner, str) else inner[0]
                yield from (part.partition("}")[0].partition(".")[0] for part in text.split("${")[1:])
            elif key == "DependsOn":
                yield from inner if isinstance(inner, list) else [inner]
            else:
                yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def order(graph: Graph) -> list[str]:
    """A deploy order; raises `CycleError` naming the cycle."""
    return list(TopologicalSorter(graph).static_order())


def test_the_resources_of_each_template_have_an_order(stacks: Stacks) -> None:
    for template in stacks.values():
        resources = template.resources
        graph = {name: {other for other in references(body) if other in resources} for name, body in resources.items()}
        assert len(order(graph)) == len(resources)


def test_the_stacks_have_an_order_and_every_import_an_export(stacks: Stacks) -> None:
    exporters = {
        output["Export"]["Name"]: name
        for name, template in stacks.items()
        for output in template.json.get("Outputs", {}).values()
        if "Export" in output
    }
    graph: Graph = {}
    for name, template in stacks.items():
        imported = {part.partition('"')[0] for part in json.dumps(template.json).split('"Fn::ImportValue": "')[1:]}
        assert imported <= exporters.keys()
        graph[name] = {exporters[export] for export in imported}
        assert name not in graph[name]
    assert len(order(graph)) == len(stacks)


@pytest.mark.parametrize("settings", [Settings(), PRODUCTION], ids=["sandbox", "production"])
def test_build_returns_the_stacks_in_deploy_order(settings: Settings) -> None:
    stacks = app.build(new_app(), settings)
    for position, stack in enumerate(stacks):
        assert {needed.node.id for needed in stack.dependencies} <= {before.node.id for before in stacks[:position]}


def test_the_checks_can_fail() -> None:
    with pytest.raises(CycleError):
        order({"Key": {"Role"}, "Role": {"Key"}})
    assert set(references({"A": {"Fn::Sub": "x-${B.Arn}-${AWS::Region}"}, "DependsOn": "C"})) == {
        "B",
        "AWS::Region",
        "C",
    }
