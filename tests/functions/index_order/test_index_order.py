"""Index an order: the version guard, tombstones, TTL deletes and what the stream's handler reports."""

import time
from typing import Any

import boto3
import pytest

from index_order.handler import handler
from shared.errors import ShapeError, WrongSourceError

OPERATION = "index-order/v1"


def batch(*records: dict[str, Any]) -> dict[str, Any]:
    return {"Records": list(records)}


def test_every_version_is_applied_and_the_newest_wins(change: Any, context: Any, view: Any, output: Any) -> None:
    versions = [7, 5, 7, 8]
    records = [change("MODIFY", version, str(n)) for n, version in enumerate(versions)]
    assert handler(batch(*records), context) == {"batchItemFailures": []}
    assert view.only()["version"] == {"N": "8"}
    assert output().outcomes == ["applied", "older-ignored", "already-applied", "applied"]


def test_all_types_of_values_reach_the_view_unchanged(change: Any, context: Any, view: Any) -> None:
    typed = {
        "amount": {"N": "10.00"},
        "tags": {"SS": ["a", "b"]},
        "opt": {"NULL": True},
        "lines": {"L": [{"M": {"sku": {"S": "x"}, "qty": {"N": "2"}}}]},
    }
    binary = {
        "blob": {"B": "AAE="},
        "blobs": {"BS": ["AAE="]},
        "deep": {"L": [{"M": {"blob": {"B": "AAE="}}}]},
    }
    handler(batch(change("INSERT", 1, image={**typed, **binary})), context)
    item = view.only()
    assert item["tags"]["SS"].sort() is None
    assert {name: item[name] for name in typed if name != "amount"} == {
        name: value for name, value in typed.items() if name != "amount"
    }
    assert float(item["amount"]["N"]) == 10
    assert (item["blob"], item["blobs"]) == ({"B": b"\x00\x01"}, {"BS": [b"\x00\x01"]})
    assert item["deep"]["L"][0]["M"]["blob"] == {"B": b"\x00\x01"}


def test_a_removal_leaves_a_tombstone_that_late_and_equal_records_cannot_undo(
    change: Any, context: Any, view: Any
) -> None:
    handler(batch(change("INSERT", 3), change("REMOVE", 3)), context)
    tombstone = view.only()
    assert {name: tombstone[name] for name in ("id", "version", "removed")} == {
        "id": {"S": "o-1"},
        "version": {"N": "3"},
        "removed": {"BOOL": True},
    }
    assert abs(int(tombstone["expiration"]["N"]) - time.time() - 864_000) < 5

    handler(batch(change("MODIFY", 2), change("INSERT", 3), change("REMOVE", 3), change("REMOVE", 2)), context)
    assert view.only() == tombstone


def test_a_removal_that_comes_before_its_insert_keeps_the_order_out(change: Any, context: Any, view: Any) -> None:
    handler(batch(change("REMOVE", 4), change("INSERT", 1)), context)
    assert view.only()["removed"] == {"BOOL": True}


def test_an_older_removal_does_not_remove_a_newer_order(change: Any, context: Any, view: Any) -> None:
    handler(batch(change("INSERT", 5), change("REMOVE", 4)), context)
    assert "removed" not in view.only()


def test_an_order_that_continues_the_version_comes_back(change: Any, context: Any, view: Any) -> None:
    handler(batch(change("INSERT", 3), change("REMOVE", 3), change("INSERT", 4)), context)
    item = view.only()
    assert "removed" not in item
    assert "expiration" not in item, "the view must not expire a live order"


def test_ttl_deletes_are_counted_apart_and_leave_the_view(
    change: Any, context: Any, view: Any, output: Any, environment: Any
) -> None:
    environment.setenv("ORDERS_TTL_ATTRIBUTE", "endsAt")
    by_service = {"userIdentity": {"type": "Service", "principalId": "dynamodb.amazonaws.com"}}
    handler(
        batch(
            change("REMOVE", 1, "1", **by_service),
            change("REMOVE", 2, "2", image={"endsAt": {"N": "1753999999"}}),
            change("REMOVE", 3, "3", image={"endsAt": {"N": "1754000001"}}),
            change("REMOVE", 4, "4", userIdentity={"type": "Service", "principalId": "someone"}),
            change("REMOVE", 5, "5", userIdentity={"type": "User", "principalId": "dynamodb.amazonaws.com"}),
        ),
        context,
    )
    seen = output()
    assert [line["change"] for line in seen.logs] == ["expired", "expired", "removed", "removed", "removed"]
    assert seen.totals(OPERATION) == {"Applied": 5, "Expired": 2, "Removed": 3}
    assert view.only()["removed"] == {"BOOL": True}


def test_without_a_ttl_attribute_only_the_mark_of_the_service_counts(change: Any, context: Any, output: Any) -> None:
    handler(batch(change("REMOVE", 2, image={"expiration": {"N": "1"}})), context)
    assert output().totals(OPERATION) == {"Applied": 1, "Removed": 1}


def test_the_orders_own_expiration_does_not_delete_it_from_the_view(change: Any, context: Any, view: Any) -> None:
    handler(batch(change("INSERT", 1, image={"expiration": {"N": "1754000001"}})), context)
    assert "expiration" not in view.only()


def test_stops_at_the_first_failure_and_reports_that_number(change: Any, context: Any, view: Any, output: Any) -> None:
    bad = change("MODIFY", 2, "102", dynamodb={"NewImage": {"id": {"S": "o-1"}}})
    response = handler(batch(change("INSERT", 1, "101"), bad, change("MODIFY", 3, "103")), context)
    assert response == {"batchItemFailures": [{"itemIdentifier": "102"}]}
    assert view.only()["version"] == {"N": "1"}
    seen = output()
    assert (seen.logs[-1]["delivery_id"], seen.logs[-1]["error"]) == ("102", "ShapeError")
    assert seen.totals(OPERATION) == {"Applied": 1, "Failed": 1}


def test_a_failure_without_any_progress_is_raised_so_that_the_batch_is_halved(
    change: Any, context: Any, view: Any, output: Any
) -> None:
    bad = change("MODIFY", 2, "102", dynamodb={"NewImage": {"id": {"S": "o-1"}}})
    with pytest.raises(ShapeError, match="order's version is missing"):
        handler(batch(bad, change("MODIFY", 3, "103")), context)
    assert view.items() == []
    assert output().totals(OPERATION) == {"Failed": 1}


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        ({"id": {"S": "o-1"}}, "order's version is missing or no whole number"),
        ({"id": {"S": "o-1"}, "version": {"S": "1"}}, "order's version is of type str or no whole number"),
        (
            {"id": {"S": "o-1"}, "version": {"N": "1.5"}},
            "order's version is of type Decimal or no whole number",
        ),
        (
            {"id": {"S": "o-1"}, "version": {"N": "0"}},
            "order's version is of type Decimal or no whole number",
        ),
        ({"version": {"N": "1"}}, "order has an id of type NoneType; wanted str"),
        ({"id": {"N": "1"}, "version": {"N": "1"}}, "order has an id of type Decimal; wanted str"),
        (
            {"id": {"S": "o-1"}, "version": {"N": "1"}, "removed": {"BOOL": True}},
            "order has an attribute 'removed'",
        ),
        (
            {"id": {"S": "o-1"}, "version": {"Q": "1"}},
            "image holds a value that is no typed DynamoDB attribute",
        ),
        ({"id": "o-1"}, "image holds a value that is no typed DynamoDB attribute"),
        ({"blob": {"B": "%%%"}}, "image holds a value that is no typed DynamoDB attribute"),
    ],
)
def test_a_refused_image_names_what_is_wrong(
    change: Any, context: Any, view: Any, output: Any, image: Any, reason: str
) -> None:
    with pytest.raises(ShapeError):
        handler(batch(change("INSERT", 1, "9", dynamodb={"NewImage": image})), context)
    assert output().logs[-1]["reason"].startswith(reason)
    assert view.items() == []


@pytest.mark.parametrize(
    ("name", "view_type", "missing"),
    [
        ("MODIFY", "KEYS_ONLY", "NewImage"),
        ("MODIFY", "OLD_IMAGE", "NewImage"),
        ("REMOVE", "NEW_IMAGE", "OldImage"),
        ("REMOVE", "KEYS_ONLY", "OldImage"),
    ],
)
def test_a_missing_image_is_named_with_the_view_type(
    change: Any, context: Any, output: Any, name: str, view_type: str, missing: str
) -> None:
    record = change(name, 1, "9", dynamodb={"StreamViewType": view_type})
    record["dynamodb"].pop("NewImage", None)
    record["dynamodb"].pop("OldImage", None)
    with pytest.raises(ShapeError):
        handler(batch(record), context)
    assert output().logs[-1]["reason"] == (
        f"{name} record has no {missing}, its StreamViewType is {view_type}; wanted NEW_AND_OLD_IMAGES: "
        "change the table's stream"
    )


def test_an_unknown_event_name_or_view_type_is_refused(change: Any, context: Any, output: Any) -> None:
    for record in (
        {**change("INSERT", 1, "1"), "eventName": "PURGE"},
        change("INSERT", 1, "2", dynamodb={"StreamViewType": "ALL"}),
    ):
        with pytest.raises(ShapeError):
            handler(batch(record), context)
    assert [line["reason"].partition(";")[0] for line in output().logs] == [
        "record has an unknown eventName",
        "record has an unknown StreamViewType",
    ]


@pytest.mark.parametrize(
    ("event", "found"),
    [
        ({}, "no list of Records"),
        ({"Records": []}, "no list of Records"),
        ({"Records": [{"eventSource": "aws:kinesis"}]}, "comes from 'aws:kinesis'; wanted 'aws:dynamodb'"),
        ({"Records": [{"eventSource": "aws:dynamodb", "dynamodb": {}}]}, "no SequenceNumber"),
        ({"Records": [{"eventSource": "aws:dynamodb"}]}, "no SequenceNumber"),
    ],
)
def test_another_shape_is_refused_by_name(context: Any, event: Any, found: str) -> None:
    with pytest.raises(WrongSourceError, match=found):
        handler(event, context)


def test_a_put_whose_response_was_lost_is_no_failure(
    change: Any, context: Any, view: Any, output: Any, lose_response: Any
) -> None:
    sent = lose_response("PutItem")
    assert handler(batch(change("INSERT", 1)), context) == {"batchItemFailures": []}
    assert sent == ["PutItem", "PutItem"]
    assert view.only()["version"] == {"N": "1"}
    assert output().outcomes == ["already-applied"]


def test_a_time_that_is_no_number_is_refused_without_its_value(change: Any, context: Any, output: Any) -> None:
    with pytest.raises(ShapeError, match=r"^ApproximateCreationDateTime is str; wanted epoch seconds$"):
        handler(batch(change("INSERT", 1, dynamodb={"ApproximateCreationDateTime": "4111"})), context)
    assert "4111" not in output().text


def test_an_item_that_something_else_wrote_is_refused(change: Any, context: Any, output: Any) -> None:
    boto3.client("dynamodb").put_item(TableName="search-view", Item={"id": {"S": "o-1"}})
    with pytest.raises(ShapeError, match="the view's item has no version"):
        handler(batch(change("INSERT", 1, "9")), context)


def test_log_lines_have_exactly_these_fields_and_no_values(change: Any, context: Any, output: Any) -> None:
    handler(batch(change("INSERT", 1, image={"email": {"S": "ada@example.com"}})), context)
    seen = output()
    (line,) = seen.logs
    powertools = {"level", "location", "message", "timestamp", "service"}
    assert set(line) - powertools == {
        "operation",
        "delivery_id",
        "request_id",
        "outcome",
        "record_id",
        "change",
    }
    assert "ada@example.com" not in seen.text
    assert '"o-1"' not in seen.text
    assert seen.metrics[0]["_aws"]["CloudWatchMetrics"][0]["Dimensions"] == [["operation"]]
