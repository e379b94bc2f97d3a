"""Write the paragraphs of docs/method.md on the rules from the registry, and read them for a test."""

import inspect
from pathlib import Path

from grading.integrity import RULES

PATH = Path(__file__).parents[2] / "docs" / "method.md"
START, END = (
    "<!-- rules: written by `python -m tests.rulebook.method` from the registry -->\n",
    "<!-- end of rules -->\n",
)


def paragraphs() -> str:
    """Return one paragraph per rule, in order of their codes."""
    lines = []
    for code in sorted(RULES):
        rule = RULES[code]
        waiver = "a lead" if rule.is_lead else "may be waived" if rule.is_waivable else "may not be waived"
        text = " ".join((inspect.getdoc(rule.check) or "").replace("``", "`").split())
        lines.append(f"- `{code}` ({rule.severity}, {waiver}): **{rule.title}.** {text}\n")
    return "".join(lines)


def current() -> str:
    """Return the paragraphs that the document holds now."""
    return PATH.read_text().partition(START)[2].partition(END)[0].strip() + "\n"


if __name__ == "__main__":
    before, _, rest = PATH.read_text().partition(START)
    PATH.write_text(f"{before}{START}\n{paragraphs()}\n{END}{rest.partition(END)[2]}")
