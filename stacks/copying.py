"""What to copy to take one stack into another app; a test copies exactly this, elsewhere, and uses it there.

Paths are relative to the repository; a folder means all of it. `requirements.txt` is what the copy needs
installed.
"""

from __future__ import annotations

_FUNCTION = (
    "stacks/__init__.py",
    "stacks/times.py",
    "stacks/constructs/__init__.py",
    "stacks/constructs/encryption.py",
    "stacks/constructs/handler_function.py",
    "stacks/constructs/packaging.py",
    "stacks/constructs/storage.py",
    "functions/requirements.txt",
    "functions/shared",
    "tests/functions/conftest.py",
)

COPY: dict[str, tuple[str, ...]] = {
    "idempotency": (
        "stacks/__init__.py",
        "stacks/constructs/__init__.py",
        "stacks/constructs/storage.py",
        "stacks/idempotency_stack.py",
    ),
    "queue": (
        *_FUNCTION,
        "stacks/constructs/provider.py",
        "stacks/queue_stack.py",
        "functions/charge_order",
        "tests/functions/charge_order",
    ),
    "events": (
        *_FUNCTION,
        "stacks/constructs/provider.py",
        "stacks/events_stack.py",
        "functions/send_receipt",
        "tests/functions/send_receipt",
    ),
    "stream": (
        *_FUNCTION,
        "stacks/stream_stack.py",
        "functions/index_order",
        "tests/functions/index_order",
    ),
}
