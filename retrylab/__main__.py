"""`python -m retrylab`."""

from retrylab.cli import app

app()
