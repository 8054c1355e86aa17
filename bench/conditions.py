"""DynamoDB's condition and update expressions, as far as the measured handlers use them."""

import re
from collections.abc import Callable
from typing import Any

Item = dict[str, Any]
_EXISTS = "attribute_exists"
_WORD = re.compile(r"\s*(<=|>=|<>|[=<>(),]|[#:]\w+|\w+)")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: bool(left == right),
    "<": lambda left, right: bool(left < right),
    "<=": lambda left, right: bool(left <= right),
    ">=": lambda left, right: bool(left >= right),
}


class Condition:
    """One condition expression, evaluated on an item; refuses what it does not know with ValueError."""

    def __init__(self, request: Item, item: Item) -> None:
        self._words = _WORD.findall(request["ConditionExpression"])
        self._names = request.get("ExpressionAttributeNames", {})
        self._values = request.get("ExpressionAttributeValues", {})
        self._item = item

    def holds(self) -> bool:
        """Tell whether the item allows the write."""
        result = self._any()
        if self._words:
            raise ValueError(f"the bench's wire met {self._words[0]!r}; wanted AND, OR and comparisons")
        return result

    def _any(self) -> bool:
        result = self._all()
        while self._next_is("OR"):
            result = self._all() or result
        return result

    def _all(self) -> bool:
        result = self._one()
        while self._next_is("AND"):
            result = self._one() and result
        return result

    def _one(self) -> bool:
        if self._next_is("("):
            result = self._any()
            self._words.pop(0)
            return result
        word = self._words.pop(0)
        if word in ("attribute_not_exists", _EXISTS):
            _, name, _ = (self._words.pop(0) for _ in range(3))
            return (self._names[name] in self._item) is (word == _EXISTS)
        compare = _COMPARE[self._words.pop(0)]
        left, right = self._value(word), self._value(self._words.pop(0))
        return left is not None and right is not None and compare(left, right)

    def _next_is(self, word: str) -> bool:
        if self._words and self._words[0] == word:
            self._words.pop(0)
            return True
        return False

    def _value(self, word: str) -> Any:
        typed = self._values[word] if word[0] == ":" else self._item.get(self._names.get(word, word))
        if typed is None:
            return None
        ((kind, value),) = typed.items()
        return float(value) if kind == "N" else value


def updated(request: Item, item: Item) -> Item:
    """Return the item after an update expression of SET, REMOVE and ADD."""
    new, expression = dict(item), request["UpdateExpression"]
    names, values = request["ExpressionAttributeNames"], request["ExpressionAttributeValues"]
    for name, value in re.findall(r"(#\w+) = (:\w+)", expression):
        new[names[name]] = values[value]
    for name, value in re.findall(r"(#\w+) = if_not_exists\(#\w+, (:\w+)\)", expression):
        new.setdefault(names[name], values[value])
    for name in re.findall(r"REMOVE (#\w+)", expression):
        new.pop(names[name], None)
    for name, value in re.findall(r"ADD (#\w+) (:\w+)", expression):
        new[names[name]] = {"N": str(int(new.get(names[name], {"N": "0"})["N"]) + int(values[value]["N"]))}
    return new
