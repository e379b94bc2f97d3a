"""The table of cheats in docs/method.md: all ninety entries, and every rule and test that it names exists."""

import re
from pathlib import Path

import pytest

from tests.grader.support import HERE

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "method.md").read_text()
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in TEXT.splitlines() if re.match(r"\| E\d+ ", line)]
FOLDERS = ("cheats", "honest", "gpu_cheats", "gpu_honest")
CANDIDATES = {path.name[:3] for folder in FOLDERS for path in (HERE / folder).glob("[ch][0-9]*")}
CODE = "".join(path.read_text() for path in sorted((ROOT / "grading").glob("verdict*.py")))


def test_every_entry_has_its_row() -> None:
    assert [row[0].split()[0] for row in ROWS] == [f"E{number}" for number in range(1, 91)]


@pytest.mark.parametrize("row", ROWS, ids=[row[0].split()[0] for row in ROWS])
def test_what_a_row_names_exists(row: list[str]) -> None:
    assert len(row) == 3 and all(row)
    for rule in re.findall(r"`([PT]\d+[a-c]?\.\w+|grade\.\w+|rules\.\w+)`", row[1]):
        assert f'"{rule}"' in CODE, rule
    for rule in re.findall(r"`([PT]\d+[a-c]?)`", row[1]):
        assert f'"{rule}.' in CODE, rule
    for name in re.findall(r"\b[ch]\d\d\b", row[2]):
        assert name in CANDIDATES, name
    for name in re.findall(r"`(test_\w+)`", row[2]):
        assert list((ROOT / "tests").rglob(f"{name}.py")), name
