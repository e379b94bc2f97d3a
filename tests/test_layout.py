"""The house's shape: arrows, sizes, and documents that name everything."""

import ast
import re
from pathlib import Path

import pytest
from django.conf import settings

ROOT = Path(__file__).resolve().parent.parent
SOURCES = [
    path
    for folder in ("grading", "leaderboard")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "migrations" not in path.parts and not {"demo", "recordings"} & set(path.parts)
]
DECK_CODE = {"decks", "kernels"}


def modules_imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("test_*.py")), ids=relative)
def test_a_test_that_empties_the_tables_puts_back_what_migrations_made(path: Path) -> None:
    marks = re.findall(r"django_db\(([^)]*transaction=True[^)]*)\)", path.read_text())
    assert [mark for mark in marks if "serialized_rollback=True" not in mark] == []


@pytest.mark.parametrize("path", [path for path in SOURCES if path.parts[-2] != "leaderboard"], ids=relative)
def test_grading_never_imports_the_leaderboard(path: Path) -> None:
    if relative(path).startswith("grading/"):
        assert not [name for name in modules_imported(path) if name.split(".")[0] == "leaderboard"]


@pytest.mark.parametrize("path", [path for path in SOURCES if "leaderboard" in relative(path)], ids=relative)
def test_the_web_tier_never_imports_torch(path: Path) -> None:
    assert not [name for name in modules_imported(path) if name.split(".")[0] in ("torch", "triton")]


@pytest.mark.parametrize("path", [path for path in SOURCES if not DECK_CODE & set(path.parts)], ids=relative)
def test_files_and_functions_stay_readable(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 400, "split it"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= 60, f"{node.name} is {length} lines long"


def test_most_functions_are_short() -> None:
    lengths = sorted(
        (node.end_lineno or 0) - node.lineno + 1
        for path in SOURCES
        if not DECK_CODE & set(path.parts)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    )
    assert lengths[len(lengths) // 2] <= 10
    assert lengths[int(len(lengths) * 0.9)] <= 30


def test_only_the_settings_read_the_environment() -> None:
    readers = [
        relative(path)
        for path in SOURCES
        if re.search(r"\benviron\b|\bgetenv\b", path.read_text()) and path.name not in ("settings.py", "wsgi.py")
    ]
    assert [name for name in readers if name.startswith("leaderboard/")] == []


def test_every_setting_is_documented() -> None:
    text = (ROOT / "leaderboard" / "settings.py").read_text()
    names = set(re.findall(r"\"((?:PROOFLINE_|DATABASE_|CELERY_)[A-Z_]+)\"", text))
    documented = (ROOT / "docs" / "operate.md").read_text()
    assert names
    assert [name for name in sorted(names) if f"`{name}`" not in documented] == []


def test_only_publishing_writes_publication_state() -> None:
    writers = [
        relative(path)
        for path in SOURCES
        if re.search(r"Publication\.objects\.(create|update_or_create|filter\([^)]*\)\.update)", path.read_text())
    ]
    assert writers == ["leaderboard/publishing.py"]


def test_every_dependency_is_pinned_and_has_a_decision() -> None:
    decisions = (ROOT / "docs" / "decisions.md").read_text().lower()
    for path in ROOT.rglob("requirements.txt"):
        if ".venv" in path.parts or "var" in path.parts:
            continue
        for line in path.read_text().splitlines():
            name = re.split(r"[\[=#\s]", line)[0].lower()
            if not name or name.startswith("-"):
                continue
            assert "==" in line, f"{relative(path)}: {line}"
            assert name in decisions or name in {"psycopg", "dj-database-url"}, f"{name} has no line in decisions.md"


def test_templates_styles_and_scripts_stay_small() -> None:
    limits = {".html": 150, ".css": 700, ".js": 120}
    for folder in ("templates", "static"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in limits:
                assert path.read_text().count("\n") <= limits[path.suffix], relative(path)


def test_the_web_settings_name_no_test_switch() -> None:
    assert "TESTING" not in dir(settings)
