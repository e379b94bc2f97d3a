"""One stylesheet a page, joined from one file per component."""

import re
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.staticfiles import finders
from django.core.management import call_command
from django.test import Client, override_settings

from leaderboard.finders import SHEETS, SheetFinder, join_sheet
from tests.web.conftest import World

CSS = settings.BASE_DIR / "static" / "css"
ON_REQUEST = {"plot"}


@pytest.mark.parametrize("name", SHEETS)
def test_a_sheet_holds_every_component_once_and_in_order(name: str) -> None:
    text = Path(str(finders.find(name))).read_text()
    places = [text.index((CSS / f"{part}.css").read_text()) for part in SHEETS[name]]
    assert places == sorted(places) and len(set(places)) == len(SHEETS[name])
    assert "@import" not in text


def test_every_component_is_part_of_a_sheet() -> None:
    named = {part for parts in SHEETS.values() for part in parts}
    assert named | ON_REQUEST == {path.stem for path in CSS.glob("*.css")}


def test_a_changed_component_gives_another_sheet(monkeypatch: pytest.MonkeyPatch) -> None:
    finder = SheetFinder()
    place = Path(str(finder.find("css/site.css")))
    place.write_text("/* what an older version left */")
    assert Path(str(finder.find("css/site.css"))).read_bytes() == join_sheet("css/site.css")


def test_collected_files_hold_the_sheets(tmp_path: Path) -> None:
    with override_settings(STATIC_ROOT=tmp_path):
        call_command("collectstatic", interactive=False, verbosity=0)
    assert (tmp_path / "css" / "review.css").read_bytes() == join_sheet("css/review.css")


@pytest.mark.parametrize("url", ["/", "/runs/", "/methodology/", "/nowhere/"])
def test_a_page_asks_for_one_sheet(world: World, stranger: Client, url: str) -> None:
    html = stranger.get(url).content.decode()
    assert re.findall(r'rel="stylesheet" href="([^"]+)"', html) == ["/static/css/site.css"]


def test_the_desk_asks_for_one_sheet(world: World, staff: Client) -> None:
    html = staff.get("/review/").content.decode()
    assert re.findall(r'rel="stylesheet" href="([^"]+)"', html) == ["/static/css/review.css"]
