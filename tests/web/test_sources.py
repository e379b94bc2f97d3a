"""The source viewer: colours, differences, downloads; and charts and cards as files of their own."""

import re
import struct
from xml.etree import ElementTree

import pytest
from django.contrib.staticfiles import finders
from django.test import Client

from leaderboard import publishing, raster
from leaderboard.boards.files import TextFile
from leaderboard.boards.sources import colour, diff
from leaderboard.charts.common import round_end
from leaderboard.publishing import Act
from tests.web.conftest import PROBLEM, Add, World
from tests.web.test_pages import numbers_of, page, url_of

TIMES = [0.0511, 0.0522, 0.0533, 0.0544, 0.0555]


def make_file(path: str, text: str) -> TextFile:
    return TextFile(path, "0" * 64, len(text), tuple(text.splitlines()), False, False)


def text_of(lines: tuple[tuple[tuple[str, str], ...], ...]) -> list[str]:
    return ["".join(text for _, text in line) for line in lines]


@pytest.mark.parametrize(
    "text",
    [
        'def f(x):\n    # why\n    return \'<b>\' + """two\nlines"""\n',
        "\n\n  \nx = 1",
        "'unclosed\n\tif",
        "\u2028 x\n",
        "",
    ],
)
@pytest.mark.parametrize("path", ["a.py", "k.cu", "r.json", "x.yaml", "notes.log", "none"])
def test_colouring_changes_no_character(path: str, text: str) -> None:
    file = make_file(path, text)
    assert text_of(colour(file)) == list(file.lines)


def test_python_has_its_words_coloured() -> None:
    (line,) = colour(make_file("a.py", "def f(): return 'x'  # y"))
    assert [kind for kind, _ in line if kind] == ["k", "n", "k", "s", "c"]


def test_a_difference_names_the_lines_of_both_files() -> None:
    found = diff(["a", "b", "c"], ["a", "x", "c", "d"])
    assert [(line.kind, line.old, line.new, line.text) for line in found.lines] == [
        ("same", 1, 1, "a"), ("gone", 2, None, "b"), ("new", None, 2, "x"), ("same", 3, 3, "c"), ("new", None, 4, "d"),
    ]  # fmt: skip
    assert (found.added, found.removed) == (2, 1)


def test_a_difference_leaves_out_what_is_the_same() -> None:
    old = [str(number) for number in range(100)]
    found = diff(old, [*old[:50], "new", *old[50:]])
    assert [line.text for line in found.lines if line.kind == "skip"] == ["47", "47"]
    assert diff(old, old).lines == ()


@pytest.fixture
def two(add: Add, act: Act) -> tuple[str, str]:
    """Two published runs with different sources."""
    runs = [add("good-model", TIMES), add("other-model", [time * 1.5 for time in TIMES])]
    for run in runs:
        publishing.approve(run, act)
    publishing.release(act)
    return url_of(runs[0], "solution.py"), runs[1].run_id


def test_two_runs_are_shown_as_a_difference(two: tuple[str, str], stranger: Client) -> None:
    url, other = two
    assert f"?against={other}" in page(stranger, url)
    assert "The two files are the same" in page(stranger, f"{url}?against={other}")


def test_a_difference_with_a_run_that_is_not_public_does_not_exist(world: World, stranger: Client) -> None:
    url = url_of(world.published, "solution.py")
    for run in world.hidden:
        assert stranger.get(f"{url}?against={run.run_id}").status_code == 404
        assert stranger.get(f"{url_of(run, 'solution.py')}?against={world.published.run_id}").status_code == 404
        assert run.run_id not in page(stranger, url)
    assert stranger.get(f"{url}?against=none").status_code == 404


def test_a_file_is_taken_as_it_is_and_never_shown_as_anything_else(world: World, stranger: Client) -> None:
    answer = stranger.get(f"{url_of(world.published, 'benchmark.log')}?raw=1")
    assert answer["Content-Type"].startswith("text/plain") and answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Content-Disposition"] == 'attachment; filename="benchmark.log"'
    assert b"peak_fraction" in answer.content
    for run in world.hidden:
        assert stranger.get(f"{url_of(run, 'benchmark.log')}?raw=1").status_code == 404


def test_the_reproduce_section_names_command_and_digests(world: World, stranger: Client) -> None:
    run = world.published
    html = page(stranger, url_of(run))
    assert f"python manage.py explain {run}" in html
    assert f"python manage.py grade hard/{PROBLEM} --archive {run} --device cuda:0 --gpu H200" in html
    assert run.assessment.problem_version in html and run.solution_digest in html
    assert "manage.py grade" not in page(stranger, url_of(world.withheld))


def test_the_files_of_a_chart_hold_the_same_numbers(world: World, stranger: Client) -> None:
    address = f"{url_of(world.published)}shapes"
    svg, table, figure = (stranger.get(f"{address}.{ending}") for ending in ("svg", "csv", "json"))
    root = ElementTree.fromstring(svg.content)
    assert root.tag.endswith("svg") and "class" not in str(svg.content)
    values = [shape["value"][0] for shape in world.published.assessment.shapes]
    rows = table.content.decode().splitlines()[1:]
    assert [float(row.split(",")[1]) for row in rows] == pytest.approx(values)
    assert figure.json()["data"][0]["x"] == pytest.approx(values)


@pytest.mark.parametrize("kind", ["roofline", "frontier", "spread"])
@pytest.mark.parametrize("ending", ["svg", "csv", "json", "txt"])
def test_a_problems_charts_are_files_too(add: Add, act: Act, stranger: Client, kind: str, ending: str) -> None:
    for number, model in enumerate(("a-model", "b-model", "c-model")):
        publishing.approve(add(model, [time * (1 + number / 10) for time in TIMES]), act)
    publishing.release(act)
    answer = stranger.get(f"/problems/hard/{PROBLEM}/H200/{kind}.{ending}")
    assert answer.status_code == (404 if ending == "txt" else 200)
    html = page(stranger, f"/problems/hard/{PROBLEM}/")
    assert f"/problems/hard/{PROBLEM}/H200/{kind}.csv" in html


def test_a_chart_of_a_hidden_run_does_not_exist(world: World, stranger: Client) -> None:
    for run in world.hidden:
        assert stranger.get(f"{url_of(run)}shapes.csv").status_code == 404


@pytest.mark.parametrize(
    ("highest", "end"), [(0.02, 0.02), (0.021, 0.025), (0.3, 0.5), (1.0, 1.0), (7.0, 10.0), (0, 1)]
)
def test_an_axis_ends_at_a_round_number(highest: float, end: float) -> None:
    assert round_end(highest) == pytest.approx(end)


def test_cards_are_pictures_of_the_size_that_previews_ask_for(world: World, stranger: Client) -> None:
    board = stranger.get("/boards/hard/H200/card.png")
    cards = [
        board,
        *(stranger.get(f"{url_of(run)}card.png") for run in (world.published, world.withheld, world.withdrawn)),
    ]
    for card in cards:
        assert card["Content-Type"] == "image/png" and card.content.startswith(b"\x89PNG")
        assert struct.unpack(">II", card.content[16:24]) == (1200, 630)
        assert len(card.content) < 60_000
    assert len({card.content for card in cards}) == 4
    assert stranger.get(f"{url_of(world.pending)}card.png").status_code == 404
    html = page(stranger, url_of(world.published))
    assert re.search(r'og:image" content="http[^"]+card\.png"', html)


def test_a_card_writes_only_what_may_be_shown(world: World, monkeypatch: pytest.MonkeyPatch, stranger: Client) -> None:
    written: list[str] = []
    write = raster.Canvas.write

    def note(self: raster.Canvas, x: float, y: float, text: str, *rest: object, **more: object) -> float:
        written.append(text)
        return write(self, x, y, text, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(raster.Canvas, "write", note)
    for run in (world.withheld, world.failed, world.withdrawn):
        stranger.get(f"{url_of(run)}card.png")
        assert not [text for text in numbers_of(run) if any(text in line for line in written)]
    stranger.get(f"{url_of(world.published)}card.png")
    assert f"{world.published.assessment.score:.4f}" in written


def test_a_name_in_any_script_has_a_card() -> None:
    canvas = raster.Canvas(60, 20, [(0, 0, 0), (1, 1, 1)])
    canvas.write(0, 0, "é\u6f22\u202e\x00x" * 9, 1, 1)
    assert canvas.png().endswith(b"IEND\xaeB`\x82")


def test_search_engines_read_a_release_as_a_data_set(world: World, stranger: Client) -> None:
    html = page(stranger, "/releases/2/")
    (text,) = re.findall(r'<script type="application/ld\+json">(.*?)</script>', html)
    assert '"@type":"Dataset"' in text and "cells.csv" in text and "<" not in text


def test_the_style_guide_exists_in_debug_mode_only(db: None, stranger: Client, settings: pytest.FixtureRequest) -> None:
    assert stranger.get("/styleguide/").status_code == 404
    settings.DEBUG = True
    html = page(stranger, "/styleguide/")
    assert "not a result" in html.lower()


def test_corrections_name_what_was_taken_back_without_its_score(world: World, stranger: Client) -> None:
    html = page(stranger, "/corrections/")
    assert "gone-model" in html and "Withdrawn by an approver" in html
    assert not [text for text in numbers_of(world.withdrawn) if text in html]


def test_only_the_bundle_of_the_chart_package_is_a_static_file() -> None:
    assert str(finders.find("plotly.min.js")).endswith("package_data/plotly.min.js")
    for name in ("widgetbundle.js", "templates/plotly.json", "package_data/plotly.min.js"):
        assert not finders.find(name)
    assert finders.find("css/plot.css")
