"""The records that Lambda writes when it gives up on an event, in the exact shapes of the fact sheet."""

from __future__ import annotations

import json
from typing import Any

from retrylab.invocation import Result


def async_failure(
    *,
    timestamp: str,
    request_id: str,
    function_arn: str,
    qualifier: str,
    condition: str,
    attempts: int,
    payload: Any,
    last: Result | None,
) -> dict[str, Any]:
    """What the asynchronous on-failure destination gets (fact 2.2). Without `last` the function never ran."""
    record: dict[str, Any] = {
        "version": "1.0",
        "timestamp": timestamp,
        "requestContext": {
            "requestId": request_id,
            "functionArn": f"{function_arn}:{qualifier}",
            "condition": condition,
            "approximateInvokeCount": attempts,
        },
        "requestPayload": payload,
    }
    if last is not None:
        record["responseContext"] = {
            "statusCode": 200,
            "executedVersion": "$LATEST",
            "functionError": "Unhandled",
        }
        record["responsePayload"] = last.payload
    return record


def stream_failure(
    *,
    timestamp: str,
    request_id: str,
    function_arn: str,
    condition: str,
    attempts: int,
    shard: str,
    stream_arn: str,
    records: list[dict[str, Any]],
    arrivals: tuple[str, str],
    last: Result | None,
    with_payload: bool,
) -> dict[str, Any]:
    """What a DynamoDB stream mapping writes when it gives up (fact 4.3).

    `last` is None for records that grew too old. A failure by partial response has no function error. Only S3 gets
    the payload, as an escaped JSON string.
    """
    record: dict[str, Any] = {
        "requestContext": {
            "requestId": request_id,
            "functionArn": function_arn,
            "condition": condition,
            "approximateInvokeCount": attempts,
        },
        "version": "1.0",
        "timestamp": timestamp,
        "DDBStreamBatchInfo": {
            "shardId": shard,
            "startSequenceNumber": records[0]["dynamodb"]["SequenceNumber"],
            "endSequenceNumber": records[-1]["dynamodb"]["SequenceNumber"],
            "approximateArrivalOfFirstRecord": arrivals[0],
            "approximateArrivalOfLastRecord": arrivals[1],
            "batchSize": len(records),
            "streamArn": stream_arn,
        },
    }
    if condition != "RecordAgeExceeded":
        record["responseContext"] = {
            "statusCode": 200,
            "executedVersion": "$LATEST",
            "functionError": "Unhandled" if last is not None and last.failed else None,
        }
    if with_payload:
        record["payload"] = json.dumps({"Records": records})
    return record
