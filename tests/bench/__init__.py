"""Benchmarks: ratios within one run, by hand with ``make bench``; never part of the tests."""
