"""One Lambda function as this house deploys it: own role, own log group, and nothing that is not named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import CfnElement, CfnResource, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from stacks.constructs.encryption import TABLE, allow_key, allow_logs
from stacks.constructs.packaging import ARCHITECTURE, RUNTIME, Dependencies, folder_code
from stacks.times import FunctionTimes


class HandlerFunction(Construct):
    """A function, its role, its log group and, when asked for, its alias.

    `folder` is the function's folder under `functions/`, whose `handler.py` holds `handler`; `more_folders`
    ship beside it. `keep_data` keeps the log group when the stack goes, and its lines for longer.
    `alias_name` makes an alias of the current version; whatever invokes the function must use `target_arn`
    and `qualifier`, or it meets the defaults of another qualifier (fact 2.1.7).
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        folder: str,
        times: FunctionTimes,
        environment: Mapping[str, str],
        more_folders: Sequence[str] = (),
        memory_size: int = 256,
        keep_data: bool = False,
        encryption_key: kms.IKey | None = None,
        alias_name: str | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self.log_group = self._build_log_group(keep_data, encryption_key)
        self.role = self._build_role()
        self.function = lambda_.Function(
            self,
            "Function",
            code=folder_code("shared", folder, *more_folders),
            handler=f"{folder}.handler.handler",
            runtime=RUNTIME,
            architecture=ARCHITECTURE,
            layers=[Dependencies(self, "Dependencies")],
            timeout=Duration.seconds(times.timeout),
            memory_size=memory_size,
            role=self.role,
            log_group=self.log_group,
            environment={
                "POWERTOOLS_SERVICE_NAME": folder.replace("_", "-"),
                "POWERTOOLS_METRICS_NAMESPACE": "RetrySafe",
                "POWERTOOLS_LOG_LEVEL": "INFO",
                "CALL_TIMEOUT_SECONDS": f"{times.call_timeout:g}",
                **environment,
            },
        )
        self._order_after_policy()
        self.alias: lambda_.Alias | None = None
        if alias_name is not None:
            self.alias = lambda_.Alias(self, "Alias", alias_name=alias_name, version=self.function.current_version)

    @property
    def target_arn(self) -> str:
        """What a mapping, a rule or a permission must name: the alias if there is one, else the function."""
        return self.alias.function_arn if self.alias else self.function.function_arn

    @property
    def qualifier(self) -> str:
        """What an asynchronous configuration must name: the alias if there is one, else `$LATEST`."""
        return self.alias.alias_name if self.alias else "$LATEST"

    def allow(
        self,
        actions: Sequence[str],
        *resources: str,
        conditions: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Add one statement to the function's role: exactly these actions on exactly these resources."""
        self.role.add_to_policy(
            iam.PolicyStatement(
                actions=list(actions),
                resources=list(resources),
                conditions={name: dict(values) for name, values in (conditions or {}).items()},
            )
        )

    def allow_key(self, key: kms.IKey | None, actions: Sequence[str]) -> None:
        """Let the function use a customer key, when there is one."""
        allow_key(self.role, key, actions)

    def allow_table(self, table: dynamodb.ITable, *actions: str) -> None:
        """Let the function call `actions` ("PutItem", ...) on a table and use the table's customer key."""
        allow_table(self.role, table, *actions)

    def _build_log_group(self, keep_data: bool, key: kms.IKey | None) -> logs.LogGroup:
        # A generated name: a group called /aws/lambda/<function> collides with the one the service makes by
        # itself.
        allow_logs(self, key)
        return logs.LogGroup(
            self,
            "Logs",
            retention=logs.RetentionDays.THREE_MONTHS if keep_data else logs.RetentionDays.ONE_WEEK,
            removal_policy=RemovalPolicy.RETAIN if keep_data else RemovalPolicy.DESTROY,
            encryption_key=key,
        )

    def _order_after_policy(self) -> None:
        # CDK makes the function wait for role and policy. The reference to the role orders it already, and
        # linters say so; only the policy needs naming, since a mapping is refused when its grants are not
        # there yet.
        policy = self.role.node.find_child("DefaultPolicy").node.default_child
        resource = self.function.node.default_child
        if not isinstance(policy, CfnElement) or not isinstance(resource, CfnResource):
            raise TypeError(f"{self.node.path}: expected a policy and a function resource, found others")
        resource.add_override("DependsOn", [Stack.of(self).get_logical_id(policy)])

    def _build_role(self) -> iam.Role:
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["logs:CreateLogStream", "logs:PutLogEvents"],
                resources=[self.log_group.log_group_arn],
            )
        )
        return role


def allow_table(role: iam.IRole, table: dynamodb.ITable, *actions: str) -> None:
    """Let a role call `actions` ("PutItem", ...) on a table, and use its customer key if it has one."""
    role.add_to_principal_policy(
        iam.PolicyStatement(actions=[f"dynamodb:{action}" for action in actions], resources=[table.table_arn])
    )
    allow_key(role, table.encryption_key, TABLE)
