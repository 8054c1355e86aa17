"""What is deployed: one file a stack, pieces used by two or more under `constructs`."""
