"""How the effects of the three operations are recognised at the wire, and the twins that lack idempotency."""

from pathlib import Path
from typing import Any

from retrylab.scenario import Effect, TwinCode, changed

RECORDS = "Idempotency/Records"
NAIVE = Path(__file__).parent / "naive"


def by_reference(item: Any) -> str:
    return str(item["reference"])


def answered(before: Any, after: Any) -> bool:
    """The provider had an effect when an item got its answer; control attributes alone are none."""
    return "answer" not in (before or {}) and "answer" in (after or {})


def by_version(item: Any) -> str:
    return f"{item['id']}@{item['version']}"


CHARGE = Effect("charge", "SandboxProvider/Payments", by_reference, answered)
MAIL = Effect("mail", "SandboxProvider/Mails", by_reference, answered)
VIEW = Effect("change of the view", "Stream/SearchView", by_version, changed)

NAIVE_CHARGE = TwinCode("Queue/ChargeOrder", NAIVE, "charge_order_twin.handler")
NAIVE_RECEIPT = TwinCode("Events/SendReceipt", NAIVE, "send_receipt_twin.handler")
NAIVE_INDEX = TwinCode("Stream/IndexOrder", NAIVE, "index_order_twin.handler")


def order(order_id: str) -> dict[str, str]:
    return {"orderId": order_id, "amount": "10.00"}
