"""Comparing entrants: the sign test, what counts as a tie, and that nothing hidden takes part."""

import math

import pytest
from django.test import Client

from leaderboard import publishing
from leaderboard.boards.compare import read_comparison, sign_test
from leaderboard.publishing import Act
from tests.web.conftest import Add, World
from tests.web.test_pages import numbers_of, page

FAST, SLOW = [0.0511, 0.0522, 0.0533, 0.0544, 0.0555], [0.0611, 0.0622, 0.0633, 0.0644, 0.0655]


@pytest.mark.parametrize(
    ("wins", "losses", "p"),
    [(0, 0, None), (1, 0, 1.0), (5, 0, 0.0625), (0, 5, 0.0625), (6, 0, 0.03125), (10, 2, 0.03857421875), (3, 3, 1.0)],
)
def test_the_sign_test_is_exact_and_two_sided(wins: int, losses: int, p: float | None) -> None:
    assert sign_test(wins, losses) == p


@pytest.fixture
def pair(add: Add, act: Act) -> tuple[str, str]:
    """Two published entrants: the first is faster on every shape but one, which they share."""
    runs = [add("fast-model", FAST), add("slow-model", [*SLOW[:4], FAST[4]])]
    for run in runs:
        publishing.approve(run, act)
    publishing.release(act)
    return runs[0].entrant.slug, runs[1].entrant.slug


def test_each_shape_is_won_or_tied_by_its_interval(pair: tuple[str, str], act: Act) -> None:
    (contest,) = read_comparison("hard/H200", pair, act.at).contests
    assert (contest.wins, contest.losses, contest.ties) == (4, 0, 1)
    expected = math.exp(sum(math.log(b / a) for a, b in zip(FAST, [*SLOW[:4], FAST[4]], strict=True)) / 5)
    assert contest.ratio == pytest.approx(expected, rel=1e-4)
    assert contest.p == contest.adjusted == 0.125
    assert not contest.is_settled


def test_the_answer_does_not_depend_on_the_order(pair: tuple[str, str], act: Act) -> None:
    (one,) = read_comparison("hard/H200", pair, act.at).contests
    (other,) = read_comparison("hard/H200", pair[::-1], act.at).contests
    assert (other.wins, other.losses) == (one.losses, one.wins)
    assert other.leader == one.leader
    assert other.times_as_fast == pytest.approx(one.times_as_fast)


def test_a_page_says_it_in_words_and_holds_its_state_in_the_address(pair: tuple[str, str], stranger: Client) -> None:
    html = page(stranger, f"/compare/?board=hard/H200&a={pair[0]}&b={pair[1]}")
    assert "is faster on <strong>4 of 5</strong> shapes" in html
    assert "with 1 tie" in html and "p = 0.12" in html
    assert f'<option value="{pair[0]}" selected>' in html


def test_an_entrant_without_a_published_cell_takes_no_part(world: World, stranger: Client) -> None:
    shown = world.published.entrant.slug
    for run in world.hidden:
        html = page(stranger, f"/compare/?board=hard/H200&a={shown}&b={run.entrant.slug}")
        assert "1 entrant left out" in html
        assert run.entrant.model.name not in html
        assert not [text for text in numbers_of(run) if text in html]


@pytest.mark.parametrize("query", ["?board=no/such", "?a=none", "?board=%00&a=%00", "?a=x&a=y&b=x&c=x&d=x&e=x"])
def test_odd_parameters_are_answered(world: World, stranger: Client, query: str) -> None:
    assert "One more entrant is needed" in page(stranger, f"/compare/{query}") or "Nothing is compared yet" in page(
        stranger, f"/compare/{query}"
    )


def test_several_pairs_are_corrected_for_their_number(pair: tuple[str, str], add: Add, act: Act) -> None:
    third = add("third-model", [0.0711, 0.0722, 0.0733, 0.0744, 0.0755])
    publishing.approve(third, act)
    publishing.release(act)
    contests = read_comparison("hard/H200", [*pair, third.entrant.slug], act.at).contests
    assert [contest.p for contest in contests] == [0.125, 0.0625, 0.0625]
    assert [contest.adjusted for contest in contests] == [pytest.approx(0.1875)] * 3
