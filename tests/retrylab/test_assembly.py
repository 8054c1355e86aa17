"""Reading assemblies, resolving values, and refusing by name what the lab does not model."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from retrylab import Assembly, Lab, LabError, Refused
from retrylab.errors import Unresolvable
from retrylab.model import Model
from tests.retrylab.sample_app import SampleApp, event_resources, queue_resources, stream_resources

NOTHING = "def handler(event, context): pass"


def resolved(sample: SampleApp, value: Any, **template: Any) -> Any:
    resources = {
        **queue_resources(),
        "Probe": {"Type": "AWS::SSM::Parameter", "Properties": {"Value": value}},
    }
    assembly = sample.assembly(resources, NOTHING, **template)
    return assembly.properties(assembly.find("Probe")).get("Value")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"Ref": "Orders"}, "https://sqs.us-east-1.amazonaws.com/111122223333/app-Orders"),
        ({"Fn::GetAtt": ["Orders", "Arn"]}, "arn:aws:sqs:us-east-1:111122223333:app-Orders"),
        ({"Fn::GetAtt": "Orders.QueueName"}, "app-Orders"),
        ({"Fn::Sub": "${AWS::Region}/${Orders.QueueName}/${!kept}"}, "us-east-1/app-Orders/${kept}"),
        ({"Fn::Sub": ["${x}-${AWS::StackName}", {"x": {"Ref": "AWS::Partition"}}]}, "aws-app"),
        ({"Fn::Join": ["-", ["a", {"Ref": "AWS::AccountId"}]]}, "a-111122223333"),
        ({"Fn::Select": [1, {"Fn::Split": [",", "a,b,c"]}]}, "b"),
        ({"Ref": "Size"}, "7"),
        ({"Fn::If": ["IsLarge", "large", "small"]}, "large"),
        ({"Fn::If": ["IsOther", "other", {"Ref": "AWS::NoValue"}]}, None),
        ({"Fn::FindInMap": ["Sizes", "us-east-1", "n"]}, 3),
        ([1, {"Ref": "AWS::NoValue"}, 2], [1, 2]),
    ],
)
def test_intrinsic_functions_resolve(sample: SampleApp, value: Any, expected: Any) -> None:
    found = resolved(
        sample,
        value,
        Parameters={"Size": {"Type": "String", "Default": "7"}, "Open": {"Type": "String"}},
        Conditions={
            "IsLarge": {"Fn::And": [{"Fn::Equals": [{"Ref": "Size"}, "7"]}, {"Fn::Not": [{"Condition": "IsOther"}]}]},
            "IsOther": {"Fn::Equals": [{"Ref": "Size"}, "8"]},
        },
        Mappings={"Sizes": {"us-east-1": {"n": 3}}},
    )
    assert found == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"Ref": "Nobody"}, "App/Probe.Value: Nobody is neither a resource nor a parameter of App"),
        ({"Ref": "Open"}, "App/Probe.Value: parameter Open of App has no default"),
        (
            {"Fn::GetAtt": ["Orders", "Colour"]},
            r"App/Probe.Value: the lab does not know attribute Colour of Orders",
        ),
        ({"Fn::ImportValue": "elsewhere"}, "App/Probe.Value: no stack of this assembly exports elsewhere"),
        ({"Fn::Cidr": ["10.0.0.0/16", 1]}, "App/Probe.Value: the lab cannot resolve Fn::Cidr"),
        (
            {"Fn::FindInMap": ["Sizes", "nowhere", "n"]},
            r"Fn::FindInMap \[Sizes, nowhere, n\] has no 'nowhere'",
        ),
    ],
)
def test_what_cannot_be_resolved_is_named_with_its_place(sample: SampleApp, value: Any, message: str) -> None:
    with pytest.raises(Unresolvable, match=message):
        resolved(
            sample,
            value,
            Parameters={"Open": {"Type": "String"}},
            Mappings={"Sizes": {"us-east-1": {"n": 3}}},
        )


def test_values_import_across_the_stacks_of_one_assembly(tmp_path: Path) -> None:
    exporting = {
        "Resources": {"Q": {"Type": "AWS::SQS::Queue"}},
        "Outputs": {"X": {"Value": {"Fn::GetAtt": ["Q", "Arn"]}, "Export": {"Name": "queue-arn"}}},
    }
    importing = {
        "Resources": {"P": {"Type": "AWS::SSM::Parameter", "Properties": {"Value": {"Fn::ImportValue": "queue-arn"}}}}
    }
    artifacts = {}
    for name, template in (("One", exporting), ("Two", importing)):
        (tmp_path / f"{name}.template.json").write_text(json.dumps(template))
        artifacts[name] = {
            "type": "aws:cloudformation:stack",
            "environment": "aws://111122223333/eu-west-1",
            "properties": {"templateFile": f"{name}.template.json", "stackName": name.lower()},
        }
    (tmp_path / "manifest.json").write_text(json.dumps({"artifacts": artifacts}))
    assembly = Assembly.load(tmp_path)
    assert assembly.properties(assembly.find("P")) == {"Value": "arn:aws:sqs:eu-west-1:111122223333:one-Q"}


def test_an_empty_folder_is_no_assembly(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"no manifest.json there; wanted a cloud assembly, as `cdk synth` writes it"):
        Assembly.load(tmp_path)


def test_names_that_mean_nothing_or_too_much_list_the_candidates(sample: SampleApp) -> None:
    assembly = sample.assembly(queue_resources(), NOTHING)
    with pytest.raises(LabError, match=r"'Nobody' names no AWS::SQS::Queue in .*; there are: App/Dead, App/Orders"):
        assembly.find("Nobody", "AWS::SQS::Queue")
    with pytest.raises(LabError, match=r"'App' names more than one resource"):
        assembly.find("App")


@pytest.mark.parametrize(
    ("resources", "change", "message"),
    [
        (queue_resources, ("Orders", "FifoQueue", True), "App/Orders: AWS::SQS::Queue.FifoQueue"),
        (
            queue_resources,
            ("Mapping", "FilterCriteria", {}),
            "AWS::Lambda::EventSourceMapping.FilterCriteria",
        ),
        (
            queue_resources,
            ("Mapping", "MaximumRetryAttempts", 3),
            "MaximumRetryAttempts does not apply to a queue",
        ),
        (
            queue_resources,
            ("Worker", "ReservedConcurrentExecutions", 1),
            "Function.ReservedConcurrentExecutions",
        ),
        (queue_resources, ("Worker", "DeadLetterConfig", {}), "AWS::Lambda::Function.DeadLetterConfig"),
        (
            queue_resources,
            ("Worker", "Runtime", "nodejs22.x"),
            "Runtime nodejs22.x; the lab runs python handlers only",
        ),
        (
            stream_resources,
            ("Mapping", "ParallelizationFactor", 2),
            "EventSourceMapping.ParallelizationFactor",
        ),
        (
            stream_resources,
            ("Mapping", "StartingPosition", "LATEST"),
            "StartingPosition LATEST; the lab models TRIM",
        ),
        (event_resources, ("Rule", "State", None), None),
        (
            event_resources,
            ("Rule", "ScheduleExpression", "rate(1 day)"),
            "AWS::Events::Rule.ScheduleExpression",
        ),
        (
            event_resources,
            ("Config", "DestinationConfig", {"OnSuccess": {"Destination": "x"}}),
            "DestinationConfig.OnSuccess is not modelled",
        ),
    ],
)
def test_unmodelled_properties_are_refused_by_name(
    sample: SampleApp, resources: Any, change: tuple[str, str, Any], message: str | None
) -> None:
    body = resources()
    resource, name, value = change
    if value is not None:
        body[resource]["Properties"][name] = value
    assembly = sample.assembly(body, NOTHING)
    if message is None:
        Model(assembly)
        return
    with pytest.raises(Refused, match=message.replace(".", r"\.")):
        Model(assembly)


def test_every_unmodelled_thing_is_named_at_once(sample: SampleApp) -> None:
    body = queue_resources(queue={"FifoQueue": True})
    body["Machine"] = {"Type": "AWS::StepFunctions::StateMachine", "Properties": {}}
    with pytest.raises(Refused) as refusal:
        Lab(sample.assembly(body, NOTHING))
    assert "App/Orders: AWS::SQS::Queue.FifoQueue" in str(refusal.value)
    assert "App/Machine: resource type AWS::StepFunctions::StateMachine" in str(refusal.value)


def test_a_target_of_a_rule_with_unmodelled_parts_is_refused(sample: SampleApp) -> None:
    resources = event_resources(target={"InputPath": "$.detail"})
    with pytest.raises(Refused, match=r"App/Rule: Targets\.InputPath is not modelled"):
        Model(sample.assembly(resources, NOTHING))


def test_a_mapping_on_an_unknown_source_is_refused(sample: SampleApp) -> None:
    resources = queue_resources(mapping={"EventSourceArn": "arn:aws:kinesis:us-east-1:111122223333:stream/s"})
    with pytest.raises(Refused, match=r"event source arn:aws:kinesis.*; the lab models queues and DynamoDB streams"):
        Model(sample.assembly(resources, NOTHING))


def test_disabled_mappings_and_rules_deliver_nothing(sample: SampleApp) -> None:
    assert Model(sample.assembly(queue_resources(mapping={"Enabled": False}), NOTHING)).queue_mappings == []
    resources = event_resources()
    resources["Rule"]["Properties"]["State"] = "DISABLED"
    assert Model(sample.assembly(resources, NOTHING)).rule_targets == []


def test_defaults_of_the_services_apply_where_a_template_is_silent(sample: SampleApp) -> None:
    resources = queue_resources()
    del resources["Orders"]["Properties"]["VisibilityTimeout"]
    del resources["Worker"]["Properties"]["Timeout"]
    model = Model(sample.assembly(resources, NOTHING))
    assert model.queues["App/Orders"].visibility_timeout == 30
    assert model.queues["App/Orders"].retention == 345_600
    assert model.functions["App/Worker"].timeout == 3
    assert model.queue_mappings[0].batch_size == 10


def test_an_alias_is_a_qualifier_of_its_function(sample: SampleApp) -> None:
    resources = event_resources(config={"Qualifier": "live"}, target={"Arn": {"Ref": "Alias"}})
    resources["Version"] = {"Type": "AWS::Lambda::Version", "Properties": {"FunctionName": {"Ref": "Worker"}}}
    resources["Alias"] = {
        "Type": "AWS::Lambda::Alias",
        "Properties": {
            "FunctionName": {"Ref": "Worker"},
            "FunctionVersion": {"Fn::GetAtt": ["Version", "Version"]},
            "Name": "live",
        },
    }
    model = Model(sample.assembly(resources, NOTHING))
    assert (model.rule_targets[0].function, model.rule_targets[0].qualifier) == ("App/Worker", "live")
    assert ("App/Worker", "live") in model.async_configs


@pytest.mark.parametrize(("wanted", "mappings"), [("yes", 1), ("no", 0)])
def test_a_resource_whose_condition_is_false_does_not_exist(sample: SampleApp, wanted: str, mappings: int) -> None:
    resources = queue_resources()
    resources["Mapping"]["Condition"] = "Consumes"
    conditions = {"Consumes": {"Fn::Equals": [wanted, "yes"]}}
    assert len(Model(sample.assembly(resources, NOTHING, Conditions=conditions)).queue_mappings) == mappings
    with pytest.raises(Unresolvable, match="App/Mapping: App has no condition Consumes"):
        sample.assembly(resources, NOTHING)


def test_a_transform_is_refused(sample: SampleApp) -> None:
    with pytest.raises(Refused, match=r"App: Transform 'AWS::Serverless-2016-10-31'; the lab reads templates after"):
        sample.assembly(queue_resources(), NOTHING, Transform="AWS::Serverless-2016-10-31")


def test_a_second_mapping_on_a_queue_is_refused(sample: SampleApp) -> None:
    resources = queue_resources()
    resources["Second"] = resources["Mapping"]
    begun = time.time()
    with pytest.raises(Refused, match=r"App/Orders feeds App/Mapping and App/Second"), sample.lab(resources, NOTHING):
        pass
    assert time.time() >= begun, "a run that could not begin has given the clocks back"
    assert time.time() - begun < 60


@pytest.mark.parametrize(("enabled", "mappings"), [("false", 0), ("true", 1), (True, 1)])
def test_booleans_may_be_text_as_in_cloudformation(sample: SampleApp, enabled: object, mappings: int) -> None:
    assert (
        len(Model(sample.assembly(queue_resources(mapping={"Enabled": enabled}), NOTHING)).queue_mappings) == mappings
    )


@pytest.mark.parametrize(
    ("resource", "name", "value", "message"),
    [
        ("Mapping", "EventSourceArn", None, "App/Mapping: AWS::Lambda::EventSourceMapping has no 'EventSourceArn'"),
        ("Charges", "KeySchema", None, "App/Charges: AWS::DynamoDB::Table has no 'KeySchema'"),
        (
            "Orders",
            "RedrivePolicy",
            {"deadLetterTargetArn": "x"},
            "App/Orders: target x; the lab models AWS::SQS::Queue",
        ),
        ("Orders", "RedrivePolicy", "{oops", "App/Orders: AWS::SQS::Queue has a property the lab cannot read"),
        ("Orders", "VisibilityTimeout", "soon", "App/Orders: AWS::SQS::Queue has a property the lab cannot read"),
        ("Mapping", "Enabled", "maybe", "App/Mapping: Enabled is 'maybe'; wanted true or false"),
        ("Mapping", "BatchSize", 100, "App/Mapping: deployment would fail .fact 3.1.2.: BatchSize 100 needs a"),
    ],
)
def test_a_resource_that_cannot_be_read_is_named(
    sample: SampleApp, resource: str, name: str, value: object, message: str
) -> None:
    resources = queue_resources()
    if value is None:
        del resources[resource]["Properties"][name]
    else:
        resources[resource]["Properties"][name] = value
    with pytest.raises(LabError, match=message):
        Model(sample.assembly(resources, NOTHING))


def test_files_that_are_no_json_and_resources_without_a_type_are_named(sample: SampleApp, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="App/Odd: no resource with a Type"):
        sample.assembly({**queue_resources(), "Odd": {}}, NOTHING)
    (tmp_path / "manifest.json").write_text("{oops")
    with pytest.raises(LabError, match=r"manifest\.json: .*; wanted a JSON file, synthesize again"):
        Assembly.load(tmp_path)


def test_stacks_in_two_regions_are_refused(tmp_path: Path) -> None:
    artifacts = {}
    for name, region in (("One", "eu-west-1"), ("Two", "us-east-1")):
        (tmp_path / f"{name}.template.json").write_text('{"Resources": {}}')
        properties = {"templateFile": f"{name}.template.json"}
        environment = f"aws://111122223333/{region}"
        artifacts[name] = {"type": "aws:cloudformation:stack", "environment": environment, "properties": properties}
    (tmp_path / "manifest.json").write_text(json.dumps({"artifacts": artifacts}))
    with pytest.raises(Refused, match="are in eu-west-1, us-east-1; the lab plays one region"):
        Lab(Assembly.load(tmp_path))
