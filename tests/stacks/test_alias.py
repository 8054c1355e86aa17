"""With an alias, everything that invokes or configures the function means the alias."""

from __future__ import annotations

import pytest

from tests.stacks.synthesis import Stacks


@pytest.mark.parametrize(("stack", "path"), [("Queue", "Queue/ChargeOrder"), ("Stream", "Stream/IndexOrder")])
def test_mapping_feeds_the_alias(aliased: Stacks, stack: str, path: str) -> None:
    alias = {"Ref": aliased[stack].id_at(f"{path}/Alias")}
    assert aliased[stack].at(f"{path}/Mapping")["FunctionName"] == alias


def test_rule_permission_and_async_config_share_the_qualifier(aliased: Stacks) -> None:
    events = aliased["Events"]
    alias = {"Ref": events.id_at("Events/SendReceipt/Alias")}
    assert events.at("Events/OrderCharged")["Targets"][0]["Arn"] == alias
    assert events.at("Events/SendReceipt/FromOrderCharged")["FunctionName"] == alias
    assert events.at("Events/SendReceipt/Alias")["Name"] == "live"
    assert events.at("Events/SendReceipt/AsyncConfig")["Qualifier"] == "live"


def test_the_qualifier_exists_before_it_is_configured(aliased: Stacks) -> None:
    events = aliased["Events"]
    config = events.resources[events.id_at("Events/SendReceipt/AsyncConfig")]
    assert events.id_at("Events/SendReceipt/Alias") in config.get("DependsOn", [])


def test_without_an_alias_there_is_no_version(sandbox: Stacks) -> None:
    for template in sandbox.values():
        assert not template.of_type("AWS::Lambda::Version")
        assert not template.of_type("AWS::Lambda::Alias")
