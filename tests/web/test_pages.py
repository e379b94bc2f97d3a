"""Pages by URL: what each reader sees, what nobody may see, and how many queries it takes."""

import gzip
import re
from collections.abc import Callable
from urllib.parse import urljoin

import pytest
from django.test import Client
from django.urls import reverse

from leaderboard import publishing
from leaderboard.boards.memo import forget_all
from leaderboard.models import LanguageModel, Run
from leaderboard.pages.public import memory
from leaderboard.publishing import Act
from tests.web.conftest import PROBLEM, SECRET_SUMMARY, Add, World, outside_evidence

COLUMN = f"/problems/hard/{PROBLEM}/"
LISTS = (
    "/",
    "/boards/hard/H200/",
    f"/boards/hard/H200/?sort={PROBLEM}&show=intervals",
    "/models/",
    "/models/good-model/",
    "/problems/",
    f"/problems/hard/{PROBLEM}/",
    "/gpus/",
    "/gpus/H200/",
    "/runs/",
    "/compare/",
    "/corrections/",
    "/data/",
    "/withheld/",
    "/releases/",
    "/releases/1/",
    "/releases/2/",
    "/methodology/",
)
EMPTY = ("/", "/boards/hard/H200/", "/models/", "/problems/", "/gpus/", "/runs/", "/withheld/", "/releases/")
LIVE = ("/gpus/", "/gpus/H200/")
BUDGETS = {
    "/": 7,
    "/boards/hard/H200/": 5,
    "/models/": 6,
    "/models/good-model/": 12,
    "/problems/": 6,
    COLUMN: 7,
    "/gpus/": 12,
    "/gpus/H200/": 11,
    "/runs/": 7,
    "/compare/": 6,
    "/withheld/": 6,
    "/releases/": 3,
    "/releases/1/": 8,
    "/data/": 7,
    "/methodology/": 2,
}


def url_of(run: Run, path: str = "") -> str:
    return f"/runs/{run.deck_id}/{run.gpu_id}/{run.run_id}/" + (f"files/{path}" if path else "")


def page(client: Client, url: str) -> str:
    response = client.get(url)
    assert response.status_code == 200, f"{url}: {response.status_code}"
    return response.content.decode()


def numbers_of(run: Run) -> set[str]:
    """Every way in which a page could print a run's score, its reported headline or its times."""
    assessment = run.assessment
    values = [assessment.score] if assessment.score is not None else []
    values += [part[0] for shape in assessment.shapes for part in (shape["value"], shape["ms"]) if part]
    texts = {f"{value:.{places}f}" for value in values for places in (4, 5, 6)}
    return texts | ({run.reported_text} if run.reported_text else set())


@pytest.mark.parametrize("url", LISTS)
def test_every_page_answers_a_stranger(world: World, stranger: Client, url: str) -> None:
    html = page(stranger, url)
    assert html.count("<h1") == 1
    assert '<main id="main"' in html


@pytest.mark.parametrize("url", EMPTY)
def test_every_page_answers_before_the_first_release(db: None, stranger: Client, url: str) -> None:
    page(stranger, url)


@pytest.mark.parametrize("url", LISTS)
def test_a_hidden_number_is_on_no_list(world: World, stranger: Client, url: str) -> None:
    html = page(stranger, url)
    for run in world.hidden:
        found = [text for text in numbers_of(run) if text in html]
        assert not found, f"{url} shows {found} of {run}"


@pytest.mark.parametrize("kind", ["withheld", "failed", "withdrawn"])
def test_a_hidden_run_shows_its_numbers_in_its_evidence_block_only(world: World, stranger: Client, kind: str) -> None:
    run = getattr(world, kind)
    html = page(stranger, url_of(run))
    outside = outside_evidence(html)
    assert html.count("data-evidence") == 1
    assert not [text for text in numbers_of(run) if text in outside]
    assert SECRET_SUMMARY in html and SECRET_SUMMARY not in outside
    assert "not a result" in html


def test_the_reported_score_of_a_withheld_run_is_struck_through(world: World, stranger: Client) -> None:
    html = page(stranger, url_of(world.withheld))
    assert re.search(r"<s [^>]*>0\.7319</s> not a result", html)


def test_the_evidence_block_is_where_the_leak_test_would_find_a_number(world: World, stranger: Client) -> None:
    run = world.withheld
    assert [text for text in numbers_of(run) if text in page(stranger, url_of(run))]


def test_a_published_run_shows_its_score_and_the_line_that_it_came_from(world: World, stranger: Client) -> None:
    run = world.published
    html = page(stranger, url_of(run))
    assert f"{run.assessment.score:.4f}" in html
    assert "data-evidence" not in html
    assert f"{url_of(run, 'benchmark.log')}#L" in html


def test_a_pending_run_does_not_exist_for_a_stranger(world: World, stranger: Client, staff: Client) -> None:
    run = world.pending
    assert stranger.get(url_of(run)).status_code == 404
    assert stranger.get(f"/models/{run.entrant.model.slug}/").status_code == 404
    for url in LISTS:
        assert "quiet-model" not in page(stranger, url), url
    assert "4 runs" in page(stranger, "/runs/")
    assert "5 runs" in page(staff, "/runs/")
    assert "data-evidence" in page(staff, url_of(run))


def test_files_open_for_published_runs_and_for_staff(world: World, stranger: Client, staff: Client) -> None:
    assert 'id="L1"' in page(stranger, url_of(world.published, "benchmark.log"))
    for run in world.hidden:
        assert stranger.get(url_of(run, "benchmark.log")).status_code == 404
        assert staff.get(url_of(run, "benchmark.log")).status_code == 200
    assert stranger.get(url_of(world.published, "../../etc/passwd")).status_code == 404


def test_a_withdrawn_cell_says_so_on_its_board(world: World, stranger: Client) -> None:
    assert "withdrawn" in page(stranger, "/boards/hard/H200/")
    assert "Withdrawn after publication" in page(stranger, "/withheld/")


def test_a_board_filters_by_harness_and_says_when_nothing_matches(world: World, stranger: Client) -> None:
    assert "good-model" in page(stranger, "/boards/hard/H200/?harness=codex")
    assert "No entrant matches" in page(stranger, "/boards/hard/H200/?harness=none-such")


def test_a_board_filters_by_date_of_run(world: World, stranger: Client) -> None:
    assert "good-model" in page(stranger, "/boards/hard/H200/?since=2026-07-01")
    assert "No entrant matches" in page(stranger, "/boards/hard/H200/?since=2026-07-02")
    assert "good-model" in page(stranger, "/boards/hard/H200/?since=9999")


def test_a_published_run_that_is_rejected_later_says_so(world: World, stranger: Client, act: Act) -> None:
    publishing.reject(world.published, act)
    html = page(stranger, url_of(world.published))
    assert "This run was rejected" in html and "Rejected by an approver" in html
    assert "Rejected by an approver" in page(stranger, "/boards/hard/H200/")
    assert not [text for text in numbers_of(world.published) if text in outside_evidence(html)]


def test_a_model_shows_what_its_attempts_took_and_how_they_were_audited(add: Add, act: Act, stranger: Client) -> None:
    usage = {"input_tokens": 1234567, "output_tokens": 89012}
    publishing.approve(add("good-model", [0.0511, 0.0522, 0.0533, 0.0544, 0.0555], usage=usage), act)
    publishing.release(act)
    html = page(stranger, "/models/good-model/")
    assert "1\u202f234\u202f567, 89\u202f012" in html and f"{SECRET_SUMMARY} of good-model" in html


def test_a_problem_counts_the_models_that_beat_each_baseline(add: Add, act: Act, stranger: Client) -> None:
    times = [0.0511, 0.0522, 0.0533, 0.0544, 0.0555]
    for model, factor in (("good-model", 1.0), ("slow-model", 3.0), ("eager", 2.0)):
        publishing.approve(add(model, [time * factor for time in times]), act)
    LanguageModel.objects.filter(slug="eager").update(is_baseline=True)
    publishing.release(act)
    assert "beaten by 1 of 2" in page(stranger, COLUMN)


def test_runs_are_searched_by_words_and_filtered_by_status(world: World, stranger: Client) -> None:
    html = page(stranger, "/runs/?q=good&status=published")
    assert world.published.run_id in html and world.withheld.run_id not in html
    assert "No run matches" in page(stranger, "/runs/?q=no-such-words")


@pytest.mark.parametrize("words", ["Held h200 withheld", "withheld gemm codex", "hard clean held-model", "nvidia held"])
def test_runs_are_searched_as_one_would_say_it(world: World, stranger: Client, words: str) -> None:
    html = page(stranger, f"/runs/?q={words}")
    assert world.withheld.run_id in html and world.published.run_id not in html


def test_the_list_of_runs_is_walked_to_its_end_by_its_own_links(world: World, add: Add, stranger: Client) -> None:
    for number in range(60):
        add(f"model-{number:02}", [0.05, 0.06, 0.07, 0.08, 0.09], "reward_hack")
    seen: list[str] = []
    url: str | None = "/runs/"
    while url:
        html = page(stranger, url)
        seen += re.findall(r'class="runid" href="([^"]+)"', html)
        following = re.search(r'rel="next" href="([^"]+)"', html)
        url = "/runs/" + following.group(1).replace("&amp;", "&") if following else None
    assert len(seen) == len(set(seen)) == 64


def forget() -> None:
    """Empty all memories, so that the next request reads everything."""
    memory.clear()
    forget_all()


@pytest.mark.parametrize("url", BUDGETS)
def test_a_page_takes_as_many_queries_with_fifty_runs_as_with_one(
    add: Add, act: Act, stranger: Client, django_assert_num_queries: Callable, url: str
) -> None:
    publishing.approve(add("good-model", [0.05, 0.06, 0.07, 0.08, 0.09]), act)
    publishing.release(act)
    page(stranger, url)
    forget()
    with django_assert_num_queries(BUDGETS[url]):
        page(stranger, url)
    for number in range(49):
        run = add(f"model-{number:02}", [0.05, 0.06, 0.07, 0.08, 0.1 + number / 1000])
        if number % 2:
            publishing.approve(run, act)
    publishing.release(act)
    page(stranger, url)
    forget()
    with django_assert_num_queries(BUDGETS[url]):
        page(stranger, url)
    again = BUDGETS[url] - 3 if url in LIVE else 1  # nothing of a live page is remembered but its cells
    with django_assert_num_queries(again):
        page(stranger, url)


def test_a_run_page_takes_a_fixed_number_of_queries(
    world: World, stranger: Client, django_assert_num_queries: Callable
) -> None:
    page(stranger, "/")
    for run in (world.published, world.withheld, world.failed, world.withdrawn):
        forget()
        with django_assert_num_queries(14):
            page(stranger, url_of(run))


def test_a_run_names_the_other_attempts_of_its_entrant_that_a_reader_may_know_of(
    world: World, stranger: Client, add: Callable, act: Act
) -> None:
    other = add("good-model", [0.0411, 0.0422, 0.0433, 0.0444, 0.0455], stamp="20260702_120000")
    assert other.entrant == world.published.entrant and other.run_id not in page(stranger, url_of(world.published))
    publishing.approve(other, act)
    publishing.release(act)
    forget()
    html = page(stranger, url_of(world.published)).partition('id="timeline"')[2]
    assert "Another attempt of the same entrant" in html and f'href="{url_of(other)}"' in html


@pytest.mark.parametrize("url", LISTS)
def test_a_page_that_did_not_change_is_not_sent_again(world: World, stranger: Client, url: str) -> None:
    first = stranger.get(url)
    again = stranger.get(url, headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again["ETag"] == first["ETag"] and "Cookie" in again["Vary"]


def test_a_withdrawal_empties_what_is_remembered_at_once(world: World, stranger: Client, act: Act) -> None:
    run = world.published
    urls = (*LISTS, url_of(run), f"{COLUMN}H200/roofline.csv", f"{url_of(run)}shapes.csv", url_of(run, "benchmark.log"))
    before = {url: stranger.get(url) for url in urls}
    assert all(answer.status_code == 200 for answer in before.values())
    publishing.withdraw(run, act)
    for url, answer in before.items():
        now = stranger.get(url, headers={"If-None-Match": answer["ETag"]})
        assert now.status_code in (200, 404), url
        outside = outside_evidence(now.content.decode())
        assert not [text for text in numbers_of(run) if text in outside], url


def test_a_page_is_compressed_for_those_who_take_that(world: World, stranger: Client) -> None:
    packed = stranger.get("/", headers={"Accept-Encoding": "gzip, br"})
    assert packed["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.content).decode() == page(stranger, "/")


def test_a_reader_with_a_session_never_gets_a_remembered_page(world: World, stranger: Client, staff: Client) -> None:
    page(stranger, "/")
    answer = staff.get("/")
    assert "Review" in answer.content.decode() and "Review" not in page(stranger, "/")
    assert "no-store" in answer["Cache-Control"] and "ETag" not in answer


def test_a_board_weighs_at_most_sixty_kilobytes_with_one_sheet_of_its_own(world: World, stranger: Client) -> None:
    html = page(stranger, "/boards/hard/H200/")
    assert len(gzip.compress(html.encode())) < 60_000
    assert re.findall(r'rel="stylesheet" href="([^"]+)"', html) == ["/static/css/site.css"]


def test_a_hostile_name_stays_text(world: World, stranger: Client) -> None:
    name = '<img src=x onerror="alert(1)">\u202e' + "long" * 60
    LanguageModel.objects.filter(slug="good-model").update(name=name, lab="</title><script>")
    for url in (*LISTS, url_of(world.published)):
        html = page(stranger, url)
        assert "<img" not in html and "</title><script>" not in html, url


@pytest.mark.parametrize("url", LISTS)
def test_a_page_has_no_inline_style_or_script_and_loads_nothing_from_elsewhere(
    world: World, stranger: Client, url: str
) -> None:
    response = stranger.get(url)
    html = response.content.decode()
    assert not re.search(r"\sstyle=|\son\w+=|<style", html)
    assert not re.search(r"<script(?![^>]*\ssrc=|[^>]*application/ld\+json)", html)
    assert not re.findall(r'(?:src|href)="(?:https?:)?//(?!127\.0\.0\.1:8000)[^"]*"', html)
    assert "default-src 'none'" in response["Content-Security-Policy"]


@pytest.mark.parametrize(
    "url",
    [
        "/nope/",
        "/boards/hard/none/",
        "/models/none/",
        "/problems/hard/none/",
        "/gpus/none/",
        "/runs/hard/H200/none/",
        "/releases/99/",
        "/releases/99999999999999999999/",
    ],
)
def test_an_unknown_address_has_a_page_of_its_own(db: None, stranger: Client, url: str) -> None:
    response = stranger.get(url)
    assert response.status_code == 404
    assert "There is nothing at this address" in response.content.decode()


def test_pages_only_read(world: World, stranger: Client) -> None:
    assert stranger.post("/runs/").status_code == 405


def test_every_link_on_the_site_leads_somewhere(world: World, stranger: Client) -> None:
    seen: set[str] = set()
    queue = ["/"]
    while queue:
        url = queue.pop()
        response = stranger.get(url)
        assert response.status_code == 200, url
        if "html" not in response.get("Content-Type", ""):
            continue
        html = response.content.decode()
        for href in re.findall(r'<a [^>]*href="([^"]+)"', html):
            target = urljoin(url, href.replace("&amp;", "&"))
            path, _, anchor = target.partition("#")
            assert not (anchor and path == url) or f'id="{anchor}"' in html, f"{url} -> {href}"
            if (
                path not in seen
                and path.startswith("/")
                and not path.startswith(("/api/", "/admin/"))
                and "?raw=" not in target
            ):
                seen.add(path)
                queue.append(path)
    assert len(seen) > 40


def test_a_long_board_is_shown_in_parts(world: World, add: Add, act: Act, stranger: Client) -> None:
    for number in range(101):
        add(f"model-{number:03}", [0.05, 0.06, 0.07, 0.08, 0.09], "reward_hack")
    publishing.release(act)
    first = page(stranger, "/boards/hard/H200/")
    second = page(stranger, "/boards/hard/H200/?start=100")
    assert "1–100 of 105" in first and 'href="?start=100"' in first
    assert "101–105 of 105" in second
    assert "1–100 of 105" in page(stranger, "/boards/hard/H200/?start=9999999999")


def test_odd_parameters_are_answered(world: World, stranger: Client) -> None:
    for query in ("after=x", "after=%00", "q=%00", "q=%F0%9F%9A%80", "deck=no", "status=no", "model=" + "x" * 5000):
        page(stranger, f"/runs/?{query}")
    page(stranger, "/boards/hard/H200/?sort=none&lab=%00&show=1")
    page(stranger, "/withheld/?board=x&reason=%00&status=no")


def test_the_health_check_tells_the_release(world: World, stranger: Client) -> None:
    assert stranger.get("/healthz").json() == {"status": "ok", "database": "ok", "release": 2}


def test_the_release_page_lists_what_changed(world: World, stranger: Client) -> None:
    html = page(stranger, "/releases/2/")
    assert "− removed" in html and "gone-model" in html


def test_every_rule_has_an_anchor_on_the_method_page(db: None, stranger: Client) -> None:
    html = page(stranger, reverse("methodology"))
    assert 'id="gpu.unproven"' in html and 'id="score.disagrees"' in html
