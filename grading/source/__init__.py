"""Source files of a run as facts: what is called, what looks odd, and how much two sources share.

Everything here reads parsed code, never raw text: comments and strings do not count, and nothing is executed.
"""
