"""Resolve parked records: `python -m shared.resolve --table NAME list | happened ID JSON | did-not-happen ID`.

Run from the folder that holds `shared`, with AWS credentials that may scan, update and delete in the table. Find out at
the provider whether the effect took place. `happened` completes the record with the result that a duplicate then gets
(`null` for none); `did-not-happen` deletes it, and the event, sent again, runs.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import boto3

from shared.records import COMPLETED, COMPLETED_FALSY, PARKED


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 1 when the record was not parked."""
    parser = argparse.ArgumentParser(prog="python -m shared.resolve")
    parser.add_argument("--table", required=True, help="name of the idempotency table")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list")
    happened = commands.add_parser("happened")
    commands.add_parser("did-not-happen").add_argument("id")
    happened.add_argument("id")
    happened.add_argument("result", type=json.loads)
    happened.add_argument("--lifetime-days", type=int, default=30, help="how long duplicates get the result")
    asked = parser.parse_args(arguments)
    client = boto3.client("dynamodb")
    parked: dict[str, Any] = {
        "ExpressionAttributeNames": {"#status": "status"},
        "ExpressionAttributeValues": {":parked": {"S": PARKED}},
    }
    if asked.command == "list":
        pages = client.get_paginator("scan").paginate(
            TableName=asked.table, FilterExpression="#status = :parked", ConsistentRead=True, **parked
        )
        for item in (item for page in pages for item in page["Items"]):
            print(item["id"]["S"], "started", item["started"]["N"])
        return 0
    try:
        _resolve(client, asked, {"TableName": asked.table, "Key": {"id": {"S": asked.id}}, **parked})
    except client.exceptions.ConditionalCheckFailedException:
        print(f"record {asked.id} is not parked in {asked.table}; wanted one that `list` shows", file=sys.stderr)
        return 1
    return 0


def _resolve(client: Any, asked: argparse.Namespace, request: dict[str, Any]) -> None:
    request["ConditionExpression"] = "#status = :parked"
    if asked.command == "did-not-happen":
        client.delete_item(**request)
        return
    falsy = asked.result is not None and not asked.result
    outcome = {
        "status": {"S": COMPLETED_FALSY if falsy else COMPLETED},
        "data": {"S": json.dumps(asked.result, sort_keys=True)},
        "expiration": {"N": str(int(time.time()) + asked.lifetime_days * 86_400)},
        "owner": {"S": "resolved"},  # a late attempt must not take the outcome for its own
    }
    request["UpdateExpression"] = "SET " + ", ".join(f"#{name} = :new_{name}" for name in outcome)
    request["ExpressionAttributeNames"] |= {f"#{name}": name for name in outcome}
    request["ExpressionAttributeValues"] |= {f":new_{name}": value for name, value in outcome.items()}
    client.update_item(**request)


if __name__ == "__main__":
    sys.exit(main())
