"""Worker: the process that holds the candidate. Untrusted from the moment the bundle is imported.

It imports the standard library and torch only, and none of the modules that compare, score or judge: the jail in which
it runs does not even hold them. It can say that it is done; it cannot say that it is right.

Source: docs/grader.md "Processes".
"""
