"""Warden: the trusted process that starts the oracle and the worker, owns the clock, and writes evidence.

It imports no torch and nothing of the bundle.

Source: docs/grader.md "Processes".
"""
