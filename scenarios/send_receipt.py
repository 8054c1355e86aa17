"""The event bus: send a receipt."""

from retrylab import Expect, Lab, scenario
from scenarios.effects import MAIL, NAIVE_RECEIPT, RECORDS, order


def charged(lab: Lab, order_id: str = "o-1") -> dict[str, object]:
    return lab.bus("OrderEvents").put("shop.orders", "OrderCharged", order(order_id), order_id)


@scenario(
    source="event",
    injected="the rule fires twice for one event",
    effect=MAIL,
    twin=NAIVE_RECEIPT,
    naive=Expect(effects={"o-1": 2}),
    expect=Expect(effects={"o-1": 1}, ended={"o-1": "completed", "o-1 again": "completed"}, calls={"o-1": 1}),
    records=RECORDS,
)
def rule_fires_twice(lab: Lab) -> None:
    envelope = charged(lab)
    lab.at(0.002, lambda: lab.bus("OrderEvents").put_envelope(envelope, "o-1 again"))


@scenario(
    source="event",
    injected="process dies between mail and completion; the mail provider takes a key",
    effect=MAIL,
    twin=NAIVE_RECEIPT,
    naive=Expect(effects={"o-1": 2}),
    expect=Expect(effects={"o-1": 1}, ended={"o-1": "completed"}, deliveries={"o-1": 2}, calls={"o-1": 2}),
    records=RECORDS,
)
def crash_with_a_keyed_provider(lab: Lab) -> None:
    lab.crash(side="after", on="Mails", attempt=1)
    charged(lab)


@scenario(
    source="event",
    injected="the same, but the mail provider takes no key: no code can prevent the second mail",
    effect=MAIL,
    twin=NAIVE_RECEIPT,
    naive=Expect(effects={"o-1": 2}),
    expect=Expect(effects={"o-1": 2}, ended={"o-1": "completed"}, deliveries={"o-1": 2}),
    records=RECORDS,
)
def crash_with_a_keyless_provider(lab: Lab) -> None:
    lab.set_variable("SendReceipt", "PROVIDER_KEY_LIFETIME_SECONDS", "0")
    lab.crash(side="after", on="Mails", attempt=1)
    charged(lab)


@scenario(
    source="event",
    injected="the mail provider refuses every call",
    effect=MAIL,
    expect=Expect(effects={}, ended={"o-1": "Events/FailedReceipts"}, deliveries={"o-1": 3}),
    records=RECORDS,
)
def retries_exhausted(lab: Lab) -> None:
    lab.fail("InternalServerError", 500, on="Mails", every=True)
    charged(lab)


@scenario(
    source="event",
    injected="EventBridge cannot reach Lambda for two hours",
    effect=MAIL,
    expect=Expect(effects={}, ended={"o-1": "Events/UndeliveredEvents"}, deliveries={"o-1": 0}),
    records=RECORDS,
)
def undeliverable_event(lab: Lab) -> None:
    lab.make_unreachable("OrderEvents", 7_200)
    charged(lab)
