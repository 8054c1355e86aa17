"""Charge an order from the queue."""
