"""The stream: index an order."""

import json

from retrylab import Expect, Lab, scenario
from scenarios.effects import NAIVE_INDEX, VIEW


def write(lab: Lab, order_id: str, version: int) -> None:
    lab.put_item("Stream/Orders", {"id": order_id, "version": version, "amount": "10.00"})


@scenario(
    source="stream",
    injected="one record makes the function time out",
    effect=VIEW,
    expect=Expect(
        effects={"o-1@1": 1, "o-2@1": 1, "o-4@1": 1},
        ended={"o-1#1": "completed", "o-3#1": "Stream/FailedRecords", "o-4#1": "completed"},
    ),
)
def record_that_times_out(lab: Lab) -> None:
    lab.hang(side="before", on="SearchView", key="o-3", every=True)
    for order_id in ("o-1", "o-2", "o-3", "o-4"):
        write(lab, order_id, 1)


@scenario(
    source="stream",
    injected="one record without a version, reported by partial response",
    effect=VIEW,
    expect=Expect(
        effects={"o-1@1": 1, "o-3@1": 1, "o-4@1": 1},
        ended={"o-1#1": "completed", "o-2#1": "Stream/FailedRecords", "o-3#1": "completed"},
        deliveries={"o-1#1": 1},
    ),
)
def bad_record(lab: Lab) -> None:
    write(lab, "o-1", 1)
    lab.put_item("Stream/Orders", {"id": "o-2", "amount": "10.00"})
    write(lab, "o-3", 1)
    write(lab, "o-4", 1)


@scenario(
    source="stream",
    injected="process dies after the view was written",
    effect=VIEW,
    twin=NAIVE_INDEX,
    naive=Expect(effects={"o-1@1": 2, "o-1@2": 2}),
    expect=Expect(effects={"o-1@1": 1, "o-1@2": 1}, ended={"o-1#1": "completed", "o-1#2": "completed"}),
)
def crash_after_the_second_version(lab: Lab) -> None:
    lab.crash(side="after", on="SearchView", nth=2, attempt=1)
    write(lab, "o-1", 1)
    write(lab, "o-1", 2)


@scenario(
    source="stream",
    injected="a failed record is delivered again after a newer version was indexed",
    effect=VIEW,
    twin=NAIVE_INDEX,
    naive=Expect(effects={"o-1@1": 1, "o-1@2": 1}),
    expect=Expect(effects={"o-1@2": 1}, ended={"o-1#1": "Stream/FailedRecords", "o-1#2": "completed"}),
)
def late_redrive_of_an_old_version(lab: Lab) -> None:
    stream = lab.stream("Stream/Orders")
    for attempt in range(1, 7):
        lab.hang(side="before", on="SearchView", attempt=attempt)
    write(lab, "o-1", 1)

    def redrive() -> None:
        (failed,) = lab.objects("FailedRecords").values()
        stream.replay(json.loads(json.loads(failed)["payload"])["Records"])

    lab.at(600, lambda: write(lab, "o-1", 2))
    lab.at(1200, redrive)
