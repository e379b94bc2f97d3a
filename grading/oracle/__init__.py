"""Oracle: the trusted process that draws inputs and weights, runs the reference, and compares. It sees no bundle.

Source: docs/grader.md "Processes".
"""
