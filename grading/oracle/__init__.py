"""Oracle: the trusted process that draws inputs and weights, runs the reference, and compares. It never sees the bundle.

Source: docs/grader.md "Processes".
"""
