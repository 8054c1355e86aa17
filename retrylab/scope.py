"""What the lab models of a template, and the refusal of everything else.

For each resource type there are two lists: properties the lab models, and properties without any bearing on delivery.
A property in neither is refused by name (`Refused`), and so is an unknown resource type.
"""

from __future__ import annotations

from retrylab.assembly import Assembly
from retrylab.errors import Refused

_MODELLED: dict[str, set[str]] = {
    "AWS::SQS::Queue": {"VisibilityTimeout", "MessageRetentionPeriod", "RedrivePolicy", "DelaySeconds"},
    "AWS::Lambda::Function": {"Handler", "Runtime", "Timeout", "Environment", "Code", "Layers", "MemorySize"},
    "AWS::Lambda::LayerVersion": {"Content"},
    "AWS::Lambda::EventSourceMapping": {
        "BatchSize", "BisectBatchOnFunctionError", "DestinationConfig", "Enabled", "EventSourceArn", "FunctionName",
        "FunctionResponseTypes", "MaximumBatchingWindowInSeconds", "MaximumRecordAgeInSeconds",
        "MaximumRetryAttempts", "ScalingConfig", "StartingPosition",
    },
    "AWS::Lambda::EventInvokeConfig": {
        "DestinationConfig", "FunctionName", "MaximumEventAgeInSeconds", "MaximumRetryAttempts", "Qualifier",
    },
    "AWS::Lambda::Alias": {"FunctionName", "FunctionVersion", "Name"},
    "AWS::Lambda::Version": {"FunctionName"},
    "AWS::DynamoDB::Table": {
        "AttributeDefinitions", "KeySchema", "StreamSpecification", "TimeToLiveSpecification", "TableName",
    },
    "AWS::Events::EventBus": {"Name"},
    "AWS::Events::Rule": {"EventBusName", "EventPattern", "State", "Targets"},
    "AWS::S3::Bucket": {"BucketName"},
}  # fmt: skip
_NO_BEARING: dict[str, set[str]] = {
    "AWS::SQS::Queue": {
        "KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "SqsManagedSseEnabled", "RedriveAllowPolicy", "Tags",
        "QueueName", "ReceiveMessageWaitTimeSeconds",
    },
    "AWS::Lambda::Function": {
        "Architectures", "Description", "FunctionName", "KmsKeyArn", "LoggingConfig", "Role", "Tags", "TracingConfig",
    },
    "AWS::Lambda::LayerVersion": {"CompatibleArchitectures", "CompatibleRuntimes", "Description", "LicenseInfo"},
    "AWS::Lambda::EventSourceMapping": {"KmsKeyArn", "MetricsConfig", "Tags"},
    "AWS::DynamoDB::Table": {
        "BillingMode", "ContributorInsightsSpecification", "DeletionProtectionEnabled",
        "PointInTimeRecoverySpecification", "SSESpecification", "Tags",
    },
    "AWS::Events::EventBus": {"Description", "KmsKeyIdentifier", "Tags", "LogConfig"},
    "AWS::Events::Rule": {"Description", "Name", "RoleArn", "Tags"},
    "AWS::S3::Bucket": {
        "BucketEncryption", "LifecycleConfiguration", "OwnershipControls", "PublicAccessBlockConfiguration", "Tags",
        "VersioningConfiguration",
    },
}  # fmt: skip
_NO_BEARING_TYPES = {
    "AWS::ApiGatewayV2::Api", "AWS::ApiGatewayV2::Stage", "AWS::CDK::Metadata", "AWS::CloudWatch::Alarm",
    "AWS::CloudWatch::Dashboard", "AWS::Events::EventBusPolicy", "AWS::IAM::ManagedPolicy", "AWS::IAM::Policy",
    "AWS::IAM::Role", "AWS::KMS::Alias", "AWS::KMS::Key", "AWS::Lambda::Permission", "AWS::Logs::LogGroup",
    "AWS::Logs::QueryDefinition", "AWS::S3::BucketPolicy", "AWS::SQS::QueuePolicy", "AWS::SSM::Parameter",
}  # fmt: skip


def refuse_unmodelled(assembly: Assembly) -> None:
    """Raise Refused, naming every resource and property of the assembly that the lab does not model."""
    unknown = []
    for resource in assembly:
        if resource.type in _NO_BEARING_TYPES:
            continue
        if resource.type not in _MODELLED:
            unknown.append(f"{resource.path}: resource type {resource.type}")
            continue
        known = _MODELLED[resource.type] | _NO_BEARING.get(resource.type, set())
        unknown += [f"{resource.path}: {resource.type}.{name}" for name in resource.properties if name not in known]
    if unknown:
        raise Refused("the lab does not model, and so refuses: " + "; ".join(unknown))
