"""The page for readers without a connection, and how little script the site has."""

from django.conf import settings
from django.test import Client


def test_the_worker_may_serve_the_whole_site_and_is_asked_for_anew(db: None, stranger: Client) -> None:
    answer = stranger.get("/offline.js")
    assert answer["Content-Type"] == "text/javascript; charset=utf-8"
    assert answer["Cache-Control"] == "no-cache"


def test_everything_that_the_worker_keeps_exists_and_names_no_release(db: None, stranger: Client) -> None:
    script = stranger.get("/offline.js").content.decode()
    assert '"/offline/"' in script and '"/static/css/site.css"' in script and '"/static/js/theme.js"' in script
    html = stranger.get("/offline/").content.decode()
    assert "cannot be reached" in html and "release" not in html
    assert [text for text in ("/static/css/site.css", "/static/js/theme.js") if text not in html] == []


def test_all_scripts_together_stay_small() -> None:
    folder = settings.BASE_DIR / "static" / "js"
    assert sum(path.read_text().count("\n") for path in folder.glob("*.js")) <= 300
