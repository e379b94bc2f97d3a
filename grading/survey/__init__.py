"""Everything that has to be measured on a GPU, as one resumable command each: ``python -m grading.survey WHAT``.

Each survey goes through a list of items, the cheapest and most telling first, and writes its JSON after every one. A
second call with the same ``--out`` goes on where the first stopped. The command itself holds no PyTorch: grades run in
the grader's own processes, everything else in a child per item, which trusts what it runs, since all of it is ours.

Source: docs/grader.md "Surveys".
"""
