"""From the event bus to the mail provider."""

from __future__ import annotations

from tests.deployed.deployment import Deployment, new_order, wait_for


def test_one_event_sends_one_mail(deployment: Deployment) -> None:
    order = new_order()
    deployment.put_event(order)
    wait_for("status of the record", lambda: deployment.record_status("send-receipt/v1", order), "COMPLETED")
    assert deployment.mails(order) == 1
