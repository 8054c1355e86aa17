"""What the tests of functions share: tables in memory, a Lambda context, a recording provider, output.

Needs only what requirements.txt lists, so that one function's folder can be copied together with this file.
"""

import importlib
import json
import sys
import time
import types
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

_FUNCTIONS = Path(__file__).resolve().parents[2] / "functions"
if str(_FUNCTIONS) not in sys.path:
    sys.path.insert(0, str(_FUNCTIONS))

RECORDS, SEARCH_VIEW = "records", "search-view"
# Loads the service model once for all tests; a client of it takes 10 ms instead of 100.
SESSION = boto3.session.Session(region_name="us-east-1", aws_access_key_id="testing", aws_secret_access_key="testing")

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "POWERTOOLS_METRICS_NAMESPACE": "RetrySafe",
    "POWERTOOLS_LOG_LEVEL": "INFO",
    "CALL_TIMEOUT_SECONDS": "2",
    "IDEMPOTENCY_TABLE": RECORDS,
    "LEASE_MARGIN_SECONDS": "5",
    "RECORD_LIFETIME_SECONDS": "864000",
    "PROVIDER": "recording_provider:connect",
    "PROVIDER_TARGET": "memory",
    "PROVIDER_KEY_LIFETIME_SECONDS": "2592000",
    "SEARCH_VIEW_TABLE": SEARCH_VIEW,
    "TOMBSTONE_LIFETIME_SECONDS": "864000",
}


@dataclass
class FakeContext:
    """A Lambda context with a settable remaining time."""

    remaining_ms: int = 10_000
    aws_request_id: str = "request-1"

    def get_remaining_time_in_millis(self) -> int:
        return self.remaining_ms


@dataclass
class RecordingProvider:
    """A provider in memory: remembers keys, counts calls and effects by reference, runs hooks in a request."""

    calls: Counter[str] = field(default_factory=Counter)
    effects: Counter[str] = field(default_factory=Counter)
    keys: list[str | None] = field(default_factory=list)
    payloads: list[dict[str, Any]] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)
    before: Callable[[], object] = lambda: None
    after: Callable[[], object] = lambda: None

    def request(self, payload: Mapping[str, Any], *, reference: str, idempotency_key: str | None) -> dict[str, Any]:
        self.calls[reference] += 1
        self.keys.append(idempotency_key)
        self.payloads.append(dict(payload))
        self.before()
        key = idempotency_key or uuid.uuid4().hex
        if key not in self.answers:
            self.answers[key] = f"effect-{len(self.answers) + 1}"
            self.effects[reference] += 1
        self.after()
        return {"id": self.answers[key]}


@dataclass(frozen=True)
class Output:
    """What the functions printed: log lines, EMF lines and the raw text."""

    logs: list[dict[str, Any]]
    metrics: list[dict[str, Any]]
    text: str

    @property
    def outcomes(self) -> list[str]:
        return [line["outcome"] for line in self.logs if "outcome" in line]

    def totals(self, operation: str) -> dict[str, float]:
        totals: Counter[str] = Counter()
        for line in self.metrics:
            if line["operation"] == operation:
                for metric in line["_aws"]["CloudWatchMetrics"][0]["Metrics"]:
                    totals[metric["Name"]] += sum(line[metric["Name"]])
        return dict(totals)


@dataclass(frozen=True)
class Table:
    """Reads and rewrites the items of a table in memory."""

    client: Any
    name: str

    def items(self) -> list[dict[str, Any]]:
        return list(self.client.scan(TableName=self.name)["Items"])

    def only(self) -> dict[str, Any]:
        (item,) = self.items()
        return item

    def change(self, **attributes: dict[str, Any]) -> None:
        """Overwrite attributes of the only item."""
        self.client.put_item(TableName=self.name, Item={**self.only(), **attributes})

    def end_lease(self) -> None:
        """Let the lease of the only record run out."""
        self.change(in_progress_expiration={"N": str(int(time.time() * 1000) - 1)})

    def end_lifetime(self) -> None:
        """Let the only record expire."""
        self.change(expiration={"N": str(int(time.time()) - 1)})


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A cold execution environment: variables set, nothing cached."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    # A service of its own gives every test a logger of its own, bound to the output captured now.
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", f"test-{uuid.uuid4().hex}")
    for name in ("ORDERS_TTL_ATTRIBUTE", "AWS_PROFILE", "AWS_ENDPOINT_URL", "POWERTOOLS_DEV"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(boto3, "client", SESSION.client)
    forget_environment()
    yield monkeypatch
    forget_environment()


@pytest.fixture
def tables(environment: pytest.MonkeyPatch) -> Iterator[Any]:
    """Empty tables; a client to look into them."""
    with mock_aws():
        client = boto3.client("dynamodb")
        for table in (RECORDS, SEARCH_VIEW):
            client.create_table(
                TableName=table,
                KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
            )
        yield client


def forget_environment() -> None:
    """Drop what the functions keep for the life of an environment, as a cold start does."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in {path.name for path in _FUNCTIONS.iterdir() if path.is_dir()}:
            for value in list(vars(module).values()):
                if type(value).__name__ == "Once":
                    value.forget()


@pytest.fixture
def context(tables: Any) -> FakeContext:
    """A Lambda context; whoever delivers an event also needs the tables."""
    return FakeContext()


@pytest.fixture
def provider(environment: pytest.MonkeyPatch) -> RecordingProvider:
    """The provider that PROVIDER names."""
    recording = RecordingProvider()
    module = types.ModuleType("recording_provider")
    module.connect = lambda _settings: recording  # type: ignore[attr-defined]
    environment.setitem(sys.modules, "recording_provider", module)
    return recording


@pytest.fixture
def records(tables: Any) -> Table:
    return Table(tables, RECORDS)


@pytest.fixture
def view(tables: Any) -> Table:
    return Table(tables, SEARCH_VIEW)


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str]) -> Callable[[], Output]:
    """Return what was printed since the last call."""

    def read() -> Output:
        text = capsys.readouterr().out
        lines = [json.loads(line) for line in text.splitlines()]
        return Output(
            logs=[line for line in lines if "_aws" not in line],
            metrics=[line for line in lines if "_aws" in line],
            text=text,
        )

    return read


@pytest.fixture
def lose_response(tables: Any) -> Callable[[str], list[str]]:
    """Let the next request of an operation be applied and its response be lost: the SDK sends it again."""
    dynamodb = importlib.import_module("shared.aws").dynamodb  # importable since this file set the path

    def lose(operation: str) -> list[str]:
        sent: list[str] = []

        def on_answer(response_dict: dict[str, Any], **_: Any) -> None:
            sent.append(operation)
            if len(sent) == 1:
                response_dict.update(status_code=400, body=b'{"__type": "RequestTimeout", "message": "lost"}')

        dynamodb().meta.events.register(f"before-parse.dynamodb.{operation}", on_answer)
        return sent

    return lose


@pytest.fixture
def message() -> Callable[..., dict[str, Any]]:
    """Build an SQS message; a body that is no text is written as JSON."""

    def build(body: Any, message_id: str = "m1") -> dict[str, Any]:
        return {
            "messageId": message_id,
            "receiptHandle": f"rh-{message_id}",
            "body": body if isinstance(body, str) else json.dumps(body),
            "attributes": {"ApproximateReceiveCount": "1"},
            "messageAttributes": {},
            "eventSource": "aws:sqs",
            "eventSourceARN": "arn:aws:sqs:us-east-1:111122223333:orders",
            "awsRegion": "us-east-1",
        }

    return build


@pytest.fixture
def order_event() -> Callable[..., dict[str, Any]]:
    """Build an EventBridge event."""

    def build(event_id: str = "e1", **detail: Any) -> dict[str, Any]:
        return {
            "version": "0",
            "id": event_id,
            "detail-type": "OrderCharged",
            "source": "shop.orders",
            "account": "111122223333",
            "time": "2026-01-05T10:00:00Z",
            "region": "us-east-1",
            "resources": [],
            "detail": detail or {"orderId": "o-1", "amount": "10.00"},
        }

    return build


@pytest.fixture
def change() -> Callable[..., dict[str, Any]]:
    """Build a record of the Orders stream with the images that its kind of change has."""

    def build(name: str, version: int, number: str = "1", **more: Any) -> dict[str, Any]:
        image = {"id": {"S": "o-1"}, "version": {"N": str(version)}, **more.pop("image", {})}
        images = {"REMOVE": ("OldImage",), "INSERT": ("NewImage",), "MODIFY": ("NewImage", "OldImage")}[name]
        return {
            "eventID": f"event-{number}",
            "eventName": name,
            "eventSource": "aws:dynamodb",
            "eventSourceARN": "arn:aws:dynamodb:us-east-1:111122223333:table/orders/stream/2026-01-01",
            "dynamodb": {
                "ApproximateCreationDateTime": 1754000000,
                "Keys": {"id": {"S": "o-1"}},
                "SequenceNumber": number,
                "StreamViewType": "NEW_AND_OLD_IMAGES",
                **dict.fromkeys(images, image),
                **more.pop("dynamodb", {}),
            },
            **more,
        }

    return build
