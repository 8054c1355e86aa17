"""The stores behind the wire, where moto alone would be wrong, and what handlers may call."""

import pytest

from retrylab import Refused
from tests.retrylab.sample_app import SampleApp, orders, queue_resources

TRANSACT = """
def handler(event, context):
    dynamodb.transact_write_items(TransactItems=[{"Put": {
        "TableName": TABLE, "Item": {"id": {"S": "k"}, "reference": {"S": "once"}},
        "ConditionExpression": "attribute_not_exists(id)",
    }}])
"""
KEPT_TOKEN = """
def handler(event, context):
    attempt = event["Records"][0]["attributes"]["ApproximateReceiveCount"]
    item = {"id": {"S": "k"}, "reference": {"S": PARAMETERS}}
    try:
        dynamodb.transact_write_items(
            ClientRequestToken="the-same-token",
            TransactItems=[{"Put": {"TableName": TABLE, "Item": item,
                                    "ConditionExpression": "attribute_not_exists(id)"}}])
    except Exception as error:
        charge(type(error).__name__)
    if attempt == "1":
        raise ValueError
"""
BUCKET = """
s3 = boto3.client("s3")

def handler(event, context):
    s3.put_object(Bucket="app-results", Key="a/b.json", Body=b"kept")
    charge(s3.get_object(Bucket="app-results", Key="a/b.json")["Body"].read().decode())
    try:
        s3.get_object(Bucket="app-results", Key="missing")
    except s3.exceptions.NoSuchKey:
        charge("missing")
"""


def test_6_8_a_transaction_whose_response_was_lost_is_not_applied_again(sample: SampleApp) -> None:
    with sample.lab(queue_resources(), TRANSACT) as lab:
        lab.lose_response(operation="TransactWriteItems")
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run()
        assert orders(lab) == ["once"]
        assert len(lab.attempts) == 1
        assert len(lab.trace.of("call")) == 3, "sent, lost, sent again by the SDK with the same token"


@pytest.mark.parametrize(
    ("visibility", "parameters", "found"),
    [
        (60, '"same"', ["same"]),
        (60, "attempt", ["1", "IdempotentParameterMismatchException"]),
        (601, '"same"', ["same", "TransactionCanceledException"]),
    ],
)
def test_6_8_a_token_is_known_for_ten_minutes_and_for_the_same_parameters_only(
    sample: SampleApp, visibility: int, parameters: str, found: list[str]
) -> None:
    code = KEPT_TOKEN.replace("PARAMETERS", parameters)
    with sample.lab(queue_resources(queue={"VisibilityTimeout": visibility}), code) as lab:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run()
        assert orders(lab) == found


def test_objects_are_calls_like_any_other(sample: SampleApp) -> None:
    resources = {
        **queue_resources(),
        "Results": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": "app-results"}},
    }
    with sample.lab(resources, BUCKET) as lab:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run()
        assert orders(lab) == ["kept", "missing"]
        assert lab.objects("Results") == {"a/b.json": "kept"}
        assert "PutObject App/Results a/b.json -> ok" in lab.trace.story()
    with sample.lab(resources, BUCKET) as lab:
        lab.crash(side="after", operation="PutObject", on="Results", attempt=1)
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run(until=30)
        assert orders(lab) == []
        assert lab.objects("Results") == {"a/b.json": "kept"}


def test_a_bucket_of_no_template_is_refused(sample: SampleApp) -> None:
    with sample.lab(queue_resources(), BUCKET) as lab:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        with pytest.raises(Refused, match="PutObject on bucket 'app-results', which no template of the assembly holds"):
            lab.run()
