"""Pieces used by two or more stacks."""
