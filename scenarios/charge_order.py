"""The queue: charge an order."""

from retrylab import Expect, Lab, scenario
from scenarios.effects import CHARGE, NAIVE_CHARGE, RECORDS, order

DAY = 86_400.0


@scenario(
    source="queue",
    injected="timeout right after the charge",
    effect=CHARGE,
    twin=NAIVE_CHARGE,
    naive=Expect(effects={"o-1": 2}),
    expect=Expect(effects={"o-1": 1}, ended={"o-1": "completed"}, deliveries={"o-1": 2}, calls={"o-1": 2}),
    records=RECORDS,
)
def timeout_after_the_effect(lab: Lab) -> None:
    lab.hang(side="after", on="Payments", attempt=1)
    lab.queue("Orders").send(order("o-1"), "o-1")


@scenario(
    source="queue",
    injected="process dies between charge and completion",
    effect=CHARGE,
    twin=NAIVE_CHARGE,
    naive=Expect(effects={"o-1": 2}),
    expect=Expect(effects={"o-1": 1}, ended={"o-1": "completed"}, deliveries={"o-1": 2}, calls={"o-1": 2}),
    records=RECORDS,
)
def crash_between_effect_and_completion(lab: Lab) -> None:
    lab.crash(side="after", on="Payments", attempt=1)
    lab.queue("Orders").send(order("o-1"), "o-1")


@scenario(
    source="queue",
    injected="the same message delivered twice at once",
    effect=CHARGE,
    twin=NAIVE_CHARGE,
    naive=Expect(effects={"o-1": 2}),
    expect=Expect(effects={"o-1": 1}, ended={"o-1": "completed"}, calls={"o-1": 1}),
    records=RECORDS,
)
def two_concurrent_deliveries(lab: Lab) -> None:
    queue = lab.queue("Orders")
    message = queue.send(order("o-1"), "o-1")
    window = queue.mapping.window
    lab.at(window + 0.002, lambda: queue.deliver_again(message))


@scenario(
    source="queue",
    injected="the producer sends the order twice (two message ids)",
    effect=CHARGE,
    twin=NAIVE_CHARGE,
    naive=Expect(effects={"o-1": 2}),
    expect=Expect(effects={"o-1": 1}, ended={"o-1 first": "completed", "o-1 again": "completed"}, calls={"o-1": 1}),
    records=RECORDS,
)
def producer_sends_twice(lab: Lab) -> None:
    queue = lab.queue("Orders")
    queue.send(order("o-1"), "o-1 first")
    lab.at(20, lambda: queue.send(order("o-1"), "o-1 again"))


@scenario(
    source="queue",
    injected="one unreadable message among nine good ones",
    effect=CHARGE,
    twin=NAIVE_CHARGE,
    naive=Expect(effects={f"o-{n}": 5 for n in range(1, 6)}),
    expect=Expect(
        effects={f"o-{n}": 1 for n in range(1, 10)},
        ended={"o-1": "completed", "o-9": "completed", "poison": "Queue/OrdersDeadLetters"},
        deliveries={"o-1": 1, "poison": 5},
    ),
    records=RECORDS,
)
def poison_message(lab: Lab) -> None:
    queue = lab.queue("Orders")
    for number in range(1, 10):
        queue.send(order(f"o-{number}"), f"o-{number}")
        if number == 5:
            queue.send("{oops", "poison")


@scenario(
    source="queue",
    injected="the claim is written, its response is lost",
    effect=CHARGE,
    expect=Expect(effects={"o-1": 1}, ended={"o-1": "completed"}, deliveries={"o-1": 1}, calls={"o-1": 1}),
    records=RECORDS,
)
def lost_response_of_the_claim(lab: Lab) -> None:
    lab.lose_response(operation="PutItem", on="Records", attempt=1)
    lab.queue("Orders").send(order("o-1"), "o-1")


@scenario(
    source="queue",
    injected="the provider answers too late; the call gives up, not the function",
    effect=CHARGE,
    expect=Expect(effects={"o-1": 1}, ended={"o-1": "completed"}, deliveries={"o-1": 1}),
    records=RECORDS,
)
def slow_provider(lab: Lab) -> None:
    lab.slow(8, on="Payments", attempt=1)
    lab.queue("Orders").send(order("o-1"), "o-1")


@scenario(
    source="queue",
    injected="throttled for 26 s; then an attempt as long as the timeout allows",
    effect=CHARGE,
    expect=Expect(effects={"o-1": 1}, ended={"o-1": "completed"}, deliveries={"o-1": 2}),
    records=RECORDS,
)
def throttled_then_slow(lab: Lab) -> None:
    lab.throttle("ChargeOrder", 26)
    lab.hang(side="after", on="Payments", attempt=1)
    lab.queue("Orders").send(order("o-1"), "o-1")


@scenario(
    source="queue",
    injected="the order comes again after 40 days, when record and provider have forgotten it",
    effect=CHARGE,
    expect=Expect(effects={"o-1": 2}, ended={"o-1 first": "completed", "o-1 late": "completed"}),
    records=RECORDS,
)
def redelivery_after_the_record_lifetime(lab: Lab) -> None:
    queue = lab.queue("Orders")
    queue.send(order("o-1"), "o-1 first")
    lab.at(40 * DAY, lambda: queue.send(order("o-1"), "o-1 late"))


@scenario(
    source="queue",
    injected="nothing",
    effect=CHARGE,
    expect=Expect(effects={"o-1": 1}, ended={"o-1": "completed"}, deliveries={"o-1": 1}, calls={"o-1": 1}),
    records=RECORDS,
    explore=True,
)
def one_order(lab: Lab) -> None:
    lab.queue("Orders").send(order("o-1"), "o-1")


@scenario(
    source="queue",
    injected="a duplicate while the first delivery runs",
    effect=CHARGE,
    expect=Expect(effects={"o-1": 1}, ended={"o-1": "completed"}),
    records=RECORDS,
    explore=True,
)
def one_order_delivered_twice(lab: Lab) -> None:
    queue = lab.queue("Orders")
    message = queue.send(order("o-1"), "o-1")
    lab.at(queue.mapping.window + 0.002, lambda: queue.deliver_again(message))
