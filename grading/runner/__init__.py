"""Runs one problem with one solution in the deck's own order and archives what happened.

The deck's check and benchmark each run in a child process with reference, shapes and solution in one folder, as the
decks do it; the parent applies the gates to their logs and writes a run directory in the deck's format, with our own
``environment.json`` beside it. Solution, check and clock share a process here, so this runner is for entrants that we
trust (baselines, our own kernels, controls): it records, it does not verify.

Source: docs/method.md "Recording a run".
"""
