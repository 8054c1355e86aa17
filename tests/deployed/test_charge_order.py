"""From the queue to the payment provider."""

from __future__ import annotations

from tests.deployed.deployment import Deployment, new_order, wait_for

OPERATION = "charge-order/v1"


def test_one_message_charges_once(deployment: Deployment) -> None:
    order = new_order()
    deployment.send_message(order)
    wait_for("status of the record", lambda: deployment.record_status(OPERATION, order), "COMPLETED")
    wait_for("messages in the queue", lambda: deployment.messages("OrdersUrl"), 0)
    assert deployment.charges(order) == 1


def test_an_order_sent_twice_at_once_is_charged_once(deployment: Deployment) -> None:
    """In two batches the second finds the first in progress, and comes back after the visibility timeout."""
    order = new_order()
    for _ in range(2):
        deployment.send_message(order)
    wait_for("status of the record", lambda: deployment.record_status(OPERATION, order), "COMPLETED")
    wait_for("messages in the queue", lambda: deployment.messages("OrdersUrl"), 0)
    assert deployment.charges(order) == 1
