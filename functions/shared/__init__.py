"""Idempotent handler code for Lambda on top of Powertools: copy this folder beside your function's folder."""
