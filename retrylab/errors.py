"""What the lab raises. Each message names the thing, what was found and what is wanted."""

from __future__ import annotations


class LabError(Exception):
    """The lab cannot go on: wrong use, an unreadable assembly, an ambiguous name."""


class Refused(LabError):  # noqa: N818 - it reads as a verdict: the lab refused this
    """The template or the handler uses something that the lab does not model.

    Nothing is ignored in silence: what is not modelled is refused by name, because an ignored property would make
    the lab's verdict worth nothing.
    """


class Unresolvable(LabError):  # noqa: N818
    """A template value that cannot be known before deployment, named with its place."""
