"""The public pages in a real browser: journeys, accessibility, what is requested, and how pages fit their window."""

from typing import Any

import pytest

from leaderboard.models import GradeJob
from tests.grades import make_grade
from tests.web.browsing import CHROMIUM, Reader, reading, slow_line
from tests.web.conftest import PROBLEM, Add, World

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True, serialized_rollback=True),
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]
BOARD, COLUMN = "/boards/hard/H200/", f"/problems/hard/{PROBLEM}/"
LOOKS = [(1400, "light"), (820, "dark"), (390, "light"), (390, "dark"), (1400, "dark")]
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")


@pytest.fixture
def site(clean_log: None, live_server: Any, world: World) -> tuple[str, World]:
    """A served site with a run of each kind, one of them graded with a long note."""
    note = {"rule": "P22.calibration", "message": "the calibration kernel took 0.2925 ms before and 0.2861 ms after"}
    make_grade(world.published, word="verified_note", fired=[note])
    GradeJob.objects.create(
        kind="verification", run=world.published, problem_id=world.published.problem_id, gpu_id="H200", tier="full",
        reason="person", requested_at=world.published.ingested_at, max_attempts=3, state="queued",
    )  # fmt: skip
    return live_server.url, world


def page_of(run: Any) -> str:
    return f"/runs/{run.deck_id}/{run.gpu_id}/{run.run_id}/"


def pages_of(world: World) -> list[str]:
    """One address of every kind of page, in every state that it has."""
    run = page_of(world.published)
    return [
        "/",
        BOARD,
        f"{BOARD}?show=intervals&sort={PROBLEM}",
        f"{BOARD}?harness=none",
        "/models/",
        "/models/good-model/",
        "/models/gone-model/",
        "/problems/",
        COLUMN,
        "/gpus/",
        "/gpus/H200/",
        "/runs/",
        "/runs/?q=nothing-like-it",
        run,
        f"{run}files/benchmark.log",
        f"{run}files/solution.py",
        page_of(world.withheld),
        page_of(world.failed),
        page_of(world.withdrawn),
        f"{run}files/solution.py?against={world.published.run_id}",
        "/compare/",
        "/corrections/",
        "/data/",
        "/withheld/",
        "/releases/",
        "/releases/2/",
        "/methodology/",
        "/no-such-page/",
        "/offline/",
        f"/jobs/{GradeJob.objects.get(state='queued').pk}/",
    ]


def faults_of(reader: Reader) -> list[str]:
    """Return what axe-core holds against the page, by rule and first place."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(reader.tab, options={"runOnly": {"type": "tag", "values": list(RULES)}}).response["violations"]
    return [f"{item['id']} x{len(item['nodes'])}: {item['nodes'][0]['html'][:160]}" for item in found]


@pytest.mark.parametrize(("width", "theme"), LOOKS)
def test_every_kind_of_page_fits_is_accessible_breaks_no_policy_and_asks_nobody_else(
    site: tuple[str, World], width: int, theme: str
) -> None:
    base, world = site
    faults: list[str] = []
    paths = pages_of(world)
    with reading(base, width, theme) as reader:
        for path in paths:
            reader.said.clear()
            reader.open(path)
            faults += [f"{path} {text}" for text in reader.broken() if "404" not in text]
            faults += [f"{path} is {reader.overflow()} px too wide"] if reader.overflow() > 0 else []
            faults += [f"{path} {text}" for text in reader.moves()]
            faults += [f"{path} {fault}" for fault in faults_of(reader)]
        faults += reader.foreign()
        faults += [url for url in reader.requested if "plotly" in url]
    assert faults == []


@pytest.mark.parametrize("width", [1400, 390])
def test_no_page_moves_while_a_slow_line_brings_it(site: tuple[str, World], width: int) -> None:
    base, world = site
    faults: list[str] = []
    paths = pages_of(world)
    with slow_line(base) as far, reading(far, width) as reader:
        for path in paths:
            reader.open(path)
            faults += [f"{path} {text}" for text in reader.moves()]
    assert faults == []


@pytest.mark.parametrize("has_script", [True, False])
@pytest.mark.parametrize(("width", "theme"), [(1400, "light"), (390, "dark")])
def test_a_reader_gets_from_the_front_page_to_the_line_that_proves_a_number(
    site: tuple[str, World], width: int, theme: str, has_script: bool
) -> None:
    base, world = site
    with reading(base, width, theme, has_script=has_script) as reader:
        tab = reader.tab
        reader.open("/")
        reader.follow(tab.get_by_role("link", name="Full board").first)
        assert reader.place() == BOARD
        reader.follow(tab.locator(".cell__score").first)
        assert reader.place() == page_of(world.published)
        assert tab.locator(".verdict__score").inner_text() == f"{world.published.assessment.score:.4f}"
        reader.follow(tab.locator("a[href*='benchmark.log#L']").first)
        assert "files/benchmark.log#L" in reader.place()
        assert "ms=" in tab.locator("li:target").inner_text()


@pytest.mark.parametrize("has_script", [True, False])
def test_a_board_is_sorted_and_filtered_by_its_address(site: tuple[str, World], has_script: bool) -> None:
    base, _ = site
    with reading(base, has_script=has_script) as reader:
        tab = reader.tab
        reader.open(BOARD)
        reader.follow(tab.get_by_role("columnheader", name="W4A16").get_by_role("link"))
        assert f"sort={PROBLEM}" in reader.place()
        assert tab.locator("th[aria-sort]").count() == 1
        tab.get_by_label("Harness").select_option("codex")
        tab.get_by_label("Show intervals").check()
        reader.follow(tab.get_by_role("button", name="Apply"))
        place = reader.place()
        assert "harness=codex" in place and "show=intervals" in place and f"sort={PROBLEM}" in place
        assert ("lab=" in place) is not has_script
        assert tab.locator(".cell__range").count() == 1


@pytest.mark.parametrize("has_script", [True, False])
def test_a_reader_learns_why_a_score_is_withheld(site: tuple[str, World], has_script: bool) -> None:
    base, world = site
    with reading(base, 390, has_script=has_script) as reader:
        tab = reader.tab
        reader.open("/withheld/")
        tab.locator("select[name=reason]").select_option("score.disagrees")
        reader.follow(tab.get_by_role("button", name="Apply"))
        reader.follow(tab.locator("td a.runid").first)
        assert reader.place() == page_of(world.withheld)
        assert "withheld" in tab.locator(".note--held").inner_text()
        assert tab.locator("[data-evidence] s").first.inner_text() == "0.7319"


def test_runs_are_found_by_words(site: tuple[str, World]) -> None:
    base, world = site
    with reading(base, 390) as reader:
        reader.open("/runs/")
        reader.tab.get_by_role("searchbox").fill("good w4a16")
        with reader.tab.expect_navigation(url="**/runs/?q=*"):
            reader.tab.keyboard.press("Enter")
        assert [text for text in reader.tab.locator("td .runid").all_inner_texts()] == [world.published.run_id]


def test_the_theme_is_chosen_kept_and_never_flashes(site: tuple[str, World]) -> None:
    base, _ = site
    with reading(base, theme="light") as reader:
        tab = reader.tab
        paper = "getComputedStyle(document.body).backgroundColor"
        reader.open("/")
        before = tab.evaluate(paper)
        tab.get_by_role("button", name="Colour theme").click()
        tab.get_by_role("button", name="Colour theme").click()
        assert tab.locator("html").get_attribute("data-theme") == "dark"
        dark = tab.evaluate(paper)
        assert dark != before
        tab.add_init_script(f"document.addEventListener('DOMContentLoaded', () => {{ window.first = {paper}; }})")
        reader.open("/runs/")
        assert tab.evaluate("window.first") == dark


def test_the_keyboard_reaches_the_content_first_and_walks_through_tables(site: tuple[str, World]) -> None:
    base, _ = site
    with reading(base, 390) as reader:
        tab = reader.tab
        reader.open(BOARD)
        tab.keyboard.press("Tab")
        assert tab.evaluate("document.activeElement.textContent") == "Skip to content"
        tab.keyboard.press("Enter")
        assert tab.evaluate("document.activeElement.id") == "main"
        tab.locator(".matrix").focus()
        tab.keyboard.press("ArrowRight")
        tab.wait_for_timeout(400)
        assert tab.evaluate("document.querySelector('.matrix').scrollLeft > 0")
        tab.locator("tbody .cell__score").first.focus()
        tab.keyboard.press("ArrowUp")
        assert "W4A16" in tab.evaluate("document.activeElement.textContent")
        tab.keyboard.press("ArrowDown")
        assert tab.evaluate("document.activeElement.className") == "cell__score"


def test_the_largest_paint_comes_within_a_second(site: tuple[str, World]) -> None:
    base, world = site
    with reading(base) as reader:
        for path in ("/", BOARD, page_of(world.published), COLUMN):
            reader.open(path)
            times = []
            for _ in range(3):
                reader.open(path)
                reader.tab.wait_for_timeout(200)
                times.append(reader.tab.evaluate("window.paint"))
            assert 0 < min(times) < 1000, f"{path}: {times}"


def test_a_name_made_to_break_pages_breaks_none(clean_log: None, live_server: Any, add: Add, act: Any) -> None:
    from leaderboard import publishing
    from leaderboard.models import LanguageModel

    run = add("good-model", [0.0511, 0.0522, 0.0533, 0.0544, 0.0555])
    publishing.approve(run, act)
    name = "<b onmouseover=alert(1)>\u202e" + "longword" * 20
    LanguageModel.objects.filter(slug="good-model").update(name=name, lab="‮lab" * 20)
    publishing.release(act)
    with reading(live_server.url, 390) as reader:
        for path in ("/", BOARD, "/models/", "/models/good-model/", COLUMN, "/runs/", page_of(run)):
            reader.open(path)
            assert reader.broken() == []
            assert reader.overflow() <= 0, path


@pytest.mark.parametrize(("width", "theme"), [(1400, "light"), (390, "dark")])
def test_plotly_takes_over_a_drawing_when_asked_and_breaks_no_policy(
    site: tuple[str, World], width: int, theme: str
) -> None:
    base, world = site
    with reading(base, width, theme) as reader:
        tab = reader.tab
        reader.open(page_of(world.published))
        figure = tab.locator("figure[data-chart]").first
        assert figure.locator(".chart__drawing svg").is_visible()
        tab.wait_for_timeout(300)
        assert not [url for url in reader.requested if "plotly" in url]
        figure.get_by_role("button", name="Explore").click()
        figure.locator(".chart__plot .main-svg").first.wait_for()
        figure.get_by_role("button", name="Back to the drawing").wait_for()
        assert not figure.locator(".chart__drawing").is_visible()
        assert [url.rsplit("/", 1)[-1] for url in reader.requested if "plotly" in url] == ["plotly.min.js"]
        assert tab.evaluate("document.getElementById('plotly.js-style-global').sheet.cssRules.length") > 20
        assert "shapes" in figure.locator(".chart__plot").get_attribute("aria-label")
        figure.locator(".nsewdrag").first.hover()
        assert reader.overflow() <= 0
        figure.get_by_role("button", name="Back to the drawing").click()
        assert figure.locator(".chart__drawing svg").is_visible()
        assert (reader.broken(), reader.foreign()) == ([], [])


def test_a_chart_has_its_table_on_one_key_and_is_saved_as_csv_svg_and_png(site: tuple[str, World]) -> None:
    base, world = site
    with reading(base) as reader:
        reader.open(page_of(world.published))
        figure = reader.tab.locator("figure[data-chart]").first
        figure.get_by_role("button", name="Explore").focus()
        reader.tab.keyboard.press("t")
        assert figure.get_by_role("table").is_visible()
        for name, start in (("CSV", b'"shape"'), ("SVG", b"<svg"), ("PNG", b"\x89PNG")):
            with reader.tab.expect_download() as download:
                figure.locator(".tools").get_by_text(name, exact=True).click()
            with open(download.value.path(), "rb") as file:
                assert file.read(7).startswith(start), name
        assert reader.broken() == []


def test_charts_read_without_script(site: tuple[str, World]) -> None:
    base, world = site
    with reading(base, has_script=False) as reader:
        reader.open(page_of(world.published))
        figure = reader.tab.locator("figure[data-chart]").first
        assert figure.locator("svg[role=img]").is_visible()
        assert not figure.get_by_role("button").first.is_visible()
        figure.get_by_text("Table", exact=True).click()
        assert figure.get_by_role("table").is_visible()


def test_a_reader_without_a_connection_sees_that_and_no_remembered_score(site: tuple[str, World]) -> None:
    base, world = site
    with reading(base, 390, "dark") as reader:
        tab = reader.tab
        reader.open(page_of(world.published))
        tab.evaluate("navigator.serviceWorker.ready.then(() => null)")
        tab.context.set_offline(True)
        reader.open(page_of(world.published))
        assert tab.get_by_role("heading", level=1).inner_text() == "The boards cannot be reached"
        assert tab.evaluate("getComputedStyle(document.querySelector('.masthead')).borderBottomStyle") == "solid"
        assert f"{world.published.assessment.score:.4f}" not in tab.content()
        assert (
            tab.evaluate("caches.keys().then(async (names) => (await (await caches.open(names[0])).keys()).length)")
            == 3
        )
        tab.context.set_offline(False)
        reader.open(page_of(world.published))
        assert tab.locator(".verdict__score").inner_text() == f"{world.published.assessment.score:.4f}"
