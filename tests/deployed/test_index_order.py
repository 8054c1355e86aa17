"""From the Orders table to the search view."""

from __future__ import annotations

from tests.deployed.deployment import Deployment, new_order, wait_for


def test_a_stored_order_appears_in_the_search_view(deployment: Deployment) -> None:
    order = new_order()
    deployment.store_order(order, version=1, amount="12.50")
    row = {"id": order, "version": 1, "amount": "12.50"}
    wait_for("row in the search view", lambda: deployment.viewed(order), row)
