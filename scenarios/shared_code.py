"""What the shared code does where time and crashes matter and no function of this app shows it: park and commit."""

from pathlib import Path

from retrylab import Expect, Lab, scenario
from scenarios.effects import CHARGE, MAIL, NAIVE_CHARGE, NAIVE_RECEIPT, RECORDS, order

PROBES = Path(__file__).parent / "probes"


def charged(lab: Lab) -> None:
    if not lab.service.twins:  # a naive twin stays where the lab has put it
        lab.replace_code("SendReceipt", PROBES, "parking_receipt.handler")
    lab.set_variable("SendReceipt", "PROVIDER_KEY_LIFETIME_SECONDS", "0")
    lab.bus("OrderEvents").put("shop.orders", "OrderCharged", order("o-1"), "o-1")


@scenario(
    source="event",
    injected="process dies between mail and completion; no key, the mail must not repeat",
    effect=MAIL,
    twin=NAIVE_RECEIPT,
    naive=Expect(effects={"o-1": 2}),
    expect=Expect(effects={"o-1": 1}, ended={"o-1": "Events/FailedReceipts"}, calls={"o-1": 1}),
    records=RECORDS,
)
def park_after_the_effect(lab: Lab) -> None:
    lab.crash(side="after", on="Mails", attempt=1)
    charged(lab)


@scenario(
    source="event",
    injected="the same before the mail: nothing was sent, and nobody can know that",
    effect=MAIL,
    expect=Expect(effects={}, ended={"o-1": "Events/FailedReceipts"}),
    records=RECORDS,
)
def park_before_the_effect(lab: Lab) -> None:
    lab.crash(side="before", on="Mails", attempt=1)
    charged(lab)


@scenario(
    source="event",
    injected="the mail is sent, the answer lost: one attempt, no retry by the SDK",
    effect=MAIL,
    expect=Expect(effects={"o-1": 1}, ended={"o-1": "Events/FailedReceipts"}, calls={"o-1": 1}),
    records=RECORDS,
)
def park_on_a_lost_answer(lab: Lab) -> None:
    lab.lose_response(on="Mails", attempt=1)
    charged(lab)


@scenario(
    source="queue",
    injected="process dies after the charge; the provider forgets keys after 30 s",
    effect=CHARGE,
    twin=NAIVE_CHARGE,
    naive=Expect(effects={"o-1": 2}),
    expect=Expect(effects={"o-1": 1}, ended={"o-1": "Queue/OrdersDeadLetters"}, calls={"o-1": 1}),
    records=RECORDS,
)
def takeover_when_the_key_is_forgotten(lab: Lab) -> None:
    lab.set_variable("ChargeOrder", "PROVIDER_KEY_LIFETIME_SECONDS", "30")
    lab.crash(side="after", on="Payments", attempt=1)
    lab.queue("Orders").send(order("o-1"), "o-1")


def placed(lab: Lab, form: str) -> None:
    lab.replace_code("ChargeOrder", PROBES, f"committed_order.{form}_handler")
    queue = lab.queue("Orders")
    message = queue.send(order("o-1"), "o-1")
    lab.at(queue.mapping.window + 0.002, lambda: queue.deliver_again(message))


PLACED = Expect(effects={"o-1": 1}, ended={"o-1": "completed"})


@scenario(
    source="queue",
    injected="commit: process dies right after the transaction, and the message comes twice",
    effect=CHARGE,
    expect=PLACED,
    records=RECORDS,
)
def commit_then_crash(lab: Lab) -> None:
    lab.crash(side="after", operation="TransactWriteItems", attempt=1)
    placed(lab, "commit")


@scenario(
    source="queue",
    injected="claim + commit: process dies right after the transaction, and the message comes twice",
    effect=CHARGE,
    expect=PLACED,
    records=RECORDS,
)
def claim_and_commit_then_crash(lab: Lab) -> None:
    lab.crash(side="after", operation="TransactWriteItems", attempt=1)
    placed(lab, "claim")


@scenario(
    source="queue",
    injected="claim + commit: process dies right before the transaction",
    effect=CHARGE,
    expect=PLACED,
    records=RECORDS,
)
def claim_then_crash_before_the_commit(lab: Lab) -> None:
    lab.crash(side="before", operation="TransactWriteItems", attempt=1)
    placed(lab, "claim")


@scenario(
    source="queue",
    injected="commit: the transaction is applied, its response lost, the SDK sends it again",
    effect=CHARGE,
    expect=PLACED,
    records=RECORDS,
)
def commit_with_a_lost_response(lab: Lab) -> None:
    lab.lose_response(operation="TransactWriteItems", attempt=1)
    placed(lab, "commit")
