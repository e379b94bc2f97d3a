"""The style guide shows every part, so that a changed part is seen in every state at once."""

import pytest
from django.conf import LazySettings
from django.test import Client

from tests.web.conftest import World


def test_every_partial_template_is_rendered(db: None, stranger: Client, settings: LazySettings) -> None:
    settings.DEBUG = True
    answer = stranger.get("/styleguide/")
    assert answer.status_code == 200
    rendered = {template.name for template in answer.templates}
    folder = settings.BASE_DIR / "templates"
    partials = {str(path.relative_to(folder)) for path in folder.rglob("_*.html")}
    assert partials and sorted(partials - rendered) == []


@pytest.mark.parametrize("word", ["published", "withheld", "failed", "withdrawn", "rejected", "excepted"])
def test_every_state_is_shown(db: None, stranger: Client, settings: LazySettings, word: str) -> None:
    settings.DEBUG = True
    assert f"</i>{word}</span>" in stranger.get("/styleguide/").content.decode()


def test_the_guide_reads_no_row(world: World, stranger: Client, settings: LazySettings) -> None:
    settings.DEBUG = True
    assert "good-model" not in stranger.get("/styleguide/").content.decode()
