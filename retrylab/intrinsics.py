"""CloudFormation's intrinsic functions, resolved as far as the stacks of one assembly allow.

A value that depends on something only the deployment knows is an error that names it, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from retrylab.errors import Unresolvable

_ARN_FORMS = {
    "AWS::SQS::Queue": "arn:aws:sqs:{region}:{account}:{name}",
    "AWS::Lambda::Function": "arn:aws:lambda:{region}:{account}:function:{name}",
    "AWS::DynamoDB::Table": "arn:aws:dynamodb:{region}:{account}:table/{name}",
    "AWS::S3::Bucket": "arn:aws:s3:::{name}",
    "AWS::Events::EventBus": "arn:aws:events:{region}:{account}:event-bus/{name}",
    "AWS::Events::Rule": "arn:aws:events:{region}:{account}:rule/{name}",
    "AWS::IAM::Role": "arn:aws:iam::{account}:role/{name}",
    "AWS::Logs::LogGroup": "arn:aws:logs:{region}:{account}:log-group:{name}:*",
    "AWS::KMS::Key": "arn:aws:kms:{region}:{account}:key/{name}",
    "AWS::SNS::Topic": "arn:aws:sns:{region}:{account}:{name}",
}
_NAME_PROPERTY = {
    "AWS::SQS::Queue": "QueueName",
    "AWS::Lambda::Function": "FunctionName",
    "AWS::DynamoDB::Table": "TableName",
    "AWS::S3::Bucket": "BucketName",
    "AWS::Events::EventBus": "Name",
    "AWS::Events::Rule": "Name",
    "AWS::Logs::LogGroup": "LogGroupName",
    "AWS::SNS::Topic": "TopicName",
}
_SUB_VARIABLE = re.compile(r"\$\{(!?)([^}]+)\}")


@dataclass(frozen=True)
class Scope:
    """One template with the names its pseudo parameters have."""

    stack: str
    stack_name: str
    region: str
    account: str
    template: Mapping[str, Any]


class Resolver:
    """Resolves values within and across the templates of one assembly."""

    def __init__(self, scopes: list[Scope]) -> None:
        self._scopes = {scope.stack: scope for scope in scopes}

    def resolve(self, stack: str, value: Any, *, where: str) -> Any:
        """`value` with every intrinsic function replaced. Raises Unresolvable naming `where` and the function."""
        if isinstance(value, list):
            return [item for raw in value if (item := self.resolve(stack, raw, where=where)) is not _NO_VALUE]
        if not isinstance(value, Mapping):
            return value
        if len(value) == 1:
            (function, argument), *_ = value.items()
            if function == "Ref" or function.startswith("Fn::"):
                return self._call(self._scopes[stack], function, argument, where)
        resolved = {key: self.resolve(stack, item, where=f"{where}.{key}") for key, item in value.items()}
        return {key: item for key, item in resolved.items() if item is not _NO_VALUE}

    def exists(self, stack: str, logical_id: str) -> bool:
        """Whether the resource's condition, if it has one, lets it be made."""
        scope = self._scopes[stack]
        body = scope.template["Resources"].get(logical_id)
        condition = body.get("Condition") if isinstance(body, Mapping) else None
        return condition is None or self._condition(scope, {"Condition": condition}, f"{stack}/{logical_id}")

    def ref(self, stack: str, logical_id: str) -> str:
        return str(self._ref(self._scopes[stack], logical_id, where=f"{stack}/{logical_id}"))

    def attribute(self, stack: str, logical_id: str, attribute: str) -> str:
        return self._attribute(self._scopes[stack], logical_id, attribute, where=f"{stack}/{logical_id}")

    def identities(self, stack: str, logical_id: str) -> list[str]:
        """Strings that name this resource in other resources' properties: its ARN, URL or name."""
        scope = self._scopes[stack]
        resource_type = scope.template["Resources"][logical_id]["Type"]
        found = [self.ref(stack, logical_id)]
        if resource_type in _ARN_FORMS:
            found.append(self.attribute(stack, logical_id, "Arn").removesuffix(":*"))
        return found

    def _call(self, scope: Scope, function: str, argument: Any, where: str) -> Any:
        known = {
            "Ref": self._ref,
            "Fn::GetAtt": self._get_att,
            "Fn::Sub": self._sub,
            "Fn::If": self._if,
            "Fn::FindInMap": self._find_in_map,
        }
        if function in known:
            return known[function](scope, argument, where)
        if function in ("Fn::Join", "Fn::Select", "Fn::Split", "Fn::ImportValue"):
            resolved = self.resolve(scope.stack, argument, where=where)
            return self._plain(function, resolved, where)
        raise Unresolvable(f"{where}: the lab cannot resolve {function}; write the value out or teach the resolver")

    def _get_att(self, scope: Scope, argument: Any, where: str) -> str:
        logical_id, attribute = argument.split(".", 1) if isinstance(argument, str) else argument
        return self._attribute(scope, str(logical_id), str(attribute), where)

    def _plain(self, function: str, argument: Any, where: str) -> Any:
        if function == "Fn::Join":
            delimiter, parts = argument
            return str(delimiter).join(str(part) for part in parts)
        if function == "Fn::Select":
            index, parts = argument
            return parts[int(index)]
        if function == "Fn::Split":
            delimiter, text = argument
            return str(text).split(str(delimiter))
        return self._import(str(argument), where)

    def _ref(self, scope: Scope, name: str, where: str) -> Any:
        pseudo = {
            "AWS::AccountId": scope.account,
            "AWS::Region": scope.region,
            "AWS::Partition": "aws",
            "AWS::URLSuffix": "amazonaws.com",
            "AWS::StackName": scope.stack_name,
            "AWS::NoValue": _NO_VALUE,
        }
        if name in pseudo:
            return pseudo[name]
        parameters = scope.template.get("Parameters", {})
        if name in parameters:
            if "Default" not in parameters[name]:
                raise Unresolvable(f"{where}: parameter {name} of {scope.stack} has no default; the lab needs one")
            return parameters[name]["Default"]
        return self._physical_id(scope, name, where)

    def _physical_id(self, scope: Scope, name: str, where: str) -> str:
        """What `Ref` gives for a resource: a name for most types, a URL or ARN for some."""
        body = self._body(scope, name, where)
        kind = body["Type"]
        if kind == "AWS::SQS::Queue":
            return f"https://sqs.{scope.region}.amazonaws.com/{scope.account}/{self._name(scope, name, where)}"
        if kind == "AWS::SNS::Topic":
            return self._attribute(scope, name, "Arn", where)
        if kind in ("AWS::Lambda::Alias", "AWS::Lambda::Version"):
            function = self._name_of(scope, body["Properties"]["FunctionName"], where)
            qualifier = body["Properties"].get("Name", "1")
            return f"arn:aws:lambda:{scope.region}:{scope.account}:function:{function}:{qualifier}"
        return self._name(scope, name, where)

    def _name_of(self, scope: Scope, value: Any, where: str) -> str:
        return str(self.resolve(scope.stack, value, where=where)).split(":")[-1]

    def _name(self, scope: Scope, logical_id: str, where: str) -> str:
        body = self._body(scope, logical_id, where)
        named = _NAME_PROPERTY.get(body["Type"])
        given = body.get("Properties", {}).get(named) if named else None
        if given is not None:
            return str(self.resolve(scope.stack, given, where=where))
        name = f"{scope.stack_name}-{logical_id}"
        return name.lower() if body["Type"] == "AWS::S3::Bucket" else name

    def _attribute(self, scope: Scope, logical_id: str, attribute: str, where: str) -> str:
        body = self._body(scope, logical_id, where)
        kind = body["Type"]
        name = self._name(scope, logical_id, where)
        if attribute in ("Arn", "TopicArn") and kind in _ARN_FORMS:
            return _ARN_FORMS[kind].format(region=scope.region, account=scope.account, name=name)
        if kind == "AWS::DynamoDB::Table" and attribute == "StreamArn":
            table = _ARN_FORMS[kind].format(region=scope.region, account=scope.account, name=name)
            return f"{table}/stream/2026-01-01T00:00:00.000"
        if kind == "AWS::SQS::Queue" and attribute == "QueueName":
            return name
        if kind == "AWS::SQS::Queue" and attribute == "QueueUrl":
            return str(self._ref(scope, logical_id, where))
        if kind == "AWS::Lambda::Version" and attribute == "Version":
            return "1"
        if kind == "AWS::Events::EventBus" and attribute == "Name":
            return name
        raise Unresolvable(f"{where}: the lab does not know attribute {attribute} of {logical_id} ({kind})")

    def _body(self, scope: Scope, logical_id: str, where: str) -> Mapping[str, Any]:
        body = scope.template.get("Resources", {}).get(logical_id)
        if body is None:
            raise Unresolvable(f"{where}: {logical_id} is neither a resource nor a parameter of {scope.stack}")
        assert isinstance(body, Mapping)
        return body

    def _sub(self, scope: Scope, argument: Any, where: str) -> str:
        text, variables = (argument, {}) if isinstance(argument, str) else argument

        def value_of(match: re.Match[str]) -> str:
            literal, name = match.groups()
            if literal:
                return f"${{{name}}}"
            if name in variables:
                return str(self.resolve(scope.stack, variables[name], where=where))
            if "." in name:
                logical_id, attribute = name.split(".", 1)
                return self._attribute(scope, logical_id, attribute, where)
            return str(self._ref(scope, name, where))

        return _SUB_VARIABLE.sub(value_of, text)

    def _if(self, scope: Scope, argument: Any, where: str) -> Any:
        condition, when_true, when_false = argument
        chosen = when_true if self._condition(scope, {"Condition": condition}, where) else when_false
        return self.resolve(scope.stack, chosen, where=where)

    def _condition(self, scope: Scope, expression: Any, where: str) -> bool:
        (function, argument), *_ = expression.items()
        if function == "Condition":
            if argument not in scope.template.get("Conditions", {}):
                raise Unresolvable(f"{where}: {scope.stack} has no condition {argument}")
            return self._condition(scope, scope.template["Conditions"][argument], where)
        if function == "Fn::Equals":
            left, right = self.resolve(scope.stack, argument, where=where)
            return bool(left == right)
        if function == "Fn::Not":
            return not self._condition(scope, argument[0], where)
        if function in ("Fn::And", "Fn::Or"):
            answers = [self._condition(scope, part, where) for part in argument]
            return all(answers) if function == "Fn::And" else any(answers)
        raise Unresolvable(f"{where}: the lab cannot decide the condition {function}")

    def _find_in_map(self, scope: Scope, argument: Any, where: str) -> Any:
        name, first, second = (self.resolve(scope.stack, part, where=where) for part in argument)
        try:
            return scope.template["Mappings"][name][first][second]
        except KeyError as missing:
            raise Unresolvable(f"{where}: Fn::FindInMap [{name}, {first}, {second}] has no {missing}") from None

    def _import(self, export: str, where: str) -> Any:
        for scope in self._scopes.values():
            for output in scope.template.get("Outputs", {}).values():
                name = output.get("Export", {}).get("Name")
                if name is not None and self.resolve(scope.stack, name, where=where) == export:
                    return self.resolve(scope.stack, output["Value"], where=where)
        raise Unresolvable(f"{where}: no stack of this assembly exports {export}")


class _NoValue:
    """The marker behind `AWS::NoValue`: a property with this value is as good as absent."""


_NO_VALUE = _NoValue()
