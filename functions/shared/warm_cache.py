"""Warm cache: a duplicate that the same environment has answered before costs no request. Optional.

    Operation(..., cache=WarmCache())

Only outcomes are kept, and never longer than their record: a record with an outcome is not taken over before it
expires. A record that a person deletes is still replayed by warm environments; deploy to forget.
"""

import threading
import time
from collections import OrderedDict
from typing import Any

# Clocks may differ: an entry ends this much before its record may count as expired elsewhere.
CLOCK_SKEW_SECONDS = 60


class WarmCache:
    """The last `at_most` outcomes of one operation; safe for threads."""

    def __init__(self, at_most: int = 256) -> None:
        self._at_most = at_most
        self._items: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, record_id: str) -> dict[str, Any] | None:
        """Return the record with its outcome, unless it is not there or about to expire."""
        with self._lock:
            item = self._items.pop(record_id, None)
            if item is None or int(item["expiration"]["N"]) - CLOCK_SKEW_SECONDS <= time.time():
                return None
            self._items[record_id] = item
            return item

    def put(self, record_id: str, item: dict[str, Any]) -> None:
        """Keep a record with an outcome; the one used longest ago makes room."""
        with self._lock:
            self._items[record_id] = item
            self._items.move_to_end(record_id)
            if len(self._items) > self._at_most:
                self._items.popitem(last=False)
