"""Nothing withheld leaks: every route of the URL configuration is crawled for the digits of scores nobody may read.

The crawl takes its routes from the URL configuration, so that a new page is covered without being named here. A route
whose parameter it cannot fill fails the test.
"""

import datetime
import itertools
import json
import re
from collections.abc import Callable, Iterator

import pytest
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from grading.hardware import load_gpus
from grading.problem import load_problem
from grading.yardstick import yardstick
from leaderboard import publishing, selection
from leaderboard.models import GradeJob, Run
from leaderboard.publishing import Act
from tests.database import load_run, make_user
from tests.factories import make_benchmark
from tests.grades import make_grade, make_job

PROBLEM = load_problem("hard", "07_w4a16_gemm")
EVIDENCE = re.compile(rb"<section[^>]*data-evidence.*?</section>", re.DOTALL)
SKIPPED = re.compile(r"^(admin/(jsi18n|autocomplete|r/)|static)")


def make_log(scale: float) -> str:
    """A log whose numbers no other fixture has."""
    return make_benchmark(PROBLEM, times=[scale * (1.137 + index * 0.3191) for index in range(len(PROBLEM.shapes))])


@pytest.fixture(autouse=True)
def _no_rate_limits(settings: pytest.FixtureRequest) -> None:
    settings.RATE_LIMITS = {name: (0, window) for name, (_, window) in settings.RATE_LIMITS.items()}


@pytest.fixture
def runs(publishable: Callable[..., Run], act: Act) -> dict[str, Run]:
    """One run of each standing, each of its own entrant, in a release; one was withdrawn a moment ago."""
    made = {
        "published": publishable(log=make_log(0.0441), model="shown"),
        "withheld": publishable(log=make_log(0.0573), model="held", device_name=None),
        "hacked": publishable("reward_hack", log=make_log(0.0617), model="hacked"),
        "withdrawn": publishable(log=make_log(0.0739), model="withdrawn"),
        "pending": publishable(None, log=make_log(0.0811), model="pending"),
        "failed": publishable("bug", log=make_log(0.0937), model="failed", correct=False),
        "rejected": publishable(log=make_log(0.1049), model="rejected"),
    }
    for name in ("published", "withdrawn"):
        publishing.approve(made[name], act)
    publishing.reject(made["rejected"], act)
    publishing.release(act)
    publishing.withdraw(made["withdrawn"], act)
    later = Act(act.actor, act.reason, act.at + datetime.timedelta(minutes=1))
    publishing.release(later)
    found = {name: load_run(run.run_id) for name, run in made.items()}
    for run in found.values():
        message = f"expected {run.assessment.shapes[0]['ms'][0]:.6f}"
        make_grade(run, word="incorrect", outcome="failed", fired=[{"rule": "G1", "message": message}])
        make_grade(run, gpu="B200", factor=1.0)
        make_job(run)
    return found


def digits_of(run: Run) -> set[bytes]:
    """The spellings by which a score or one of its shapes could be read: reported, recomputed, per shape."""
    assessment = run.assessment
    values = [assessment.score, assessment.score_low, assessment.score_high]
    values += [shape["value"][0] for shape in assessment.shapes] + [shape["ms"][0] for shape in assessment.shapes]
    texts = {f"{value:.4f}" for value in values if value} | {f"{value:.5g}" for value in values if value}
    texts |= {str(value)[:8] for value in values if value} | {run.reported_text or "0.none"}
    return {text.encode() for text in texts if len(text.strip("0.")) >= 3}


def secrets_of(runs: dict[str, Run], client: Client) -> dict[str, set[bytes]]:
    """The digits of every run that is not published, less what the published run or the catalogue happens to hold."""
    shown = runs["published"]
    public = client.get(f"/runs/{shown}/").content + client.get(f"/api/v1/runs/{shown}").content
    assert shown.run_id.encode() in public
    public += repr([yardstick(PROBLEM, gpu.key, gpu.current) for gpu in load_gpus().values()]).encode()
    return {
        name: {text for text in digits_of(run) if text not in public}
        for name, run in runs.items()
        if name != "published"
    }


def routes(resolver: URLResolver | None = None, prefix: str = "") -> Iterator[str]:
    """Every route of the URL configuration as one pattern text."""
    for entry in (resolver or get_resolver()).url_patterns:
        route = prefix + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from routes(entry, route)
        elif isinstance(entry, URLPattern):
            yield route


def values_for(runs: dict[str, Run]) -> dict[str, list[str]]:
    """What each URL parameter is filled with."""
    every = list(runs.values())
    slugs = sorted({run.entrant.model.slug for run in every})
    cells = [selection.cell_id(run) for run in every]
    return {
        "deck": ["hard"],
        "gpu": ["H200"],
        "key": ["H200"],
        "problem": [PROBLEM.id],
        "slug": slugs,
        "run_id": [run.run_id for run in every],
        "path": ["benchmark.log", "result.json", "solution.py"],
        "number": ["1", "2"],
        "cell_id": cells,
        "cell": cells,
        "code": ["gpu.unproven"],
        "id": ["1"],
        "object_id": [str(run.pk) for run in every],
        "content_type_id": ["1"],
        "app_label": ["leaderboard"],
        "url": ["x"],
        "rest": ["no-such-route"],
        "kind": ["roofline", "frontier", "spread"],
        "ending": ["svg", "csv", "json"],
        "job": [str(pk) for pk in GradeJob.objects.order_by("pk").values_list("pk", flat=True)],
    }


def addresses(runs: dict[str, Run]) -> Iterator[str]:
    """Every route with every combination of values."""
    values = values_for(runs)
    for route in sorted(set(routes())):
        if SKIPPED.match(route):
            continue
        plain = route.replace("^", "").replace("$", "").replace("\\Z", "").replace("\\.", ".")
        plain = re.sub(r"\(\?P<(\w+)>(?:[^()]|\([^()]*\))*\)", r"<\1>", plain)
        plain = re.sub(r"\(\?:[^()]*\)\??", "", plain).replace("/?", "")
        names = re.findall(r"<(?:\w+:)?(\w+)>", plain)
        unknown = [name for name in names if name not in values]
        assert not unknown, f"route {route} has the parameter {unknown}; tell this test what to fill in"
        for combination in itertools.product(*(values[name] for name in names)):
            address = plain
            for name, value in zip(names, combination, strict=True):
                address = re.sub(rf"<(?:\w+:)?{name}>", value.replace("\\", ""), address, count=1)
            yield "/" + address


def content_of(response: HttpResponse) -> bytes:
    """The whole body and all headers."""
    body = b"".join(response.streaming_content) if response.streaming else response.content
    return body + repr(sorted(response.headers.items())).encode()


def without_evidence(address: str, content: bytes, run: Run) -> bytes:
    """Take out the marked evidence of a run's own page and run resource; nothing else may hold its numbers."""
    own = f"/runs/hard/H200/{run.run_id}"
    if not address.split(".json")[0].rstrip("/").endswith(own):
        return content
    if b"<html" in content[:200].lower() or b"<!doctype" in content[:200].lower():
        return EVIDENCE.sub(b"", content)
    try:
        start, end = content.index(b"{"), content.rindex(b"}") + 1
        data = json.loads(content[start:end].split(b"}[", 1)[0])
    except ValueError:
        return content
    data.pop("evidence", None)
    return json.dumps(data).encode()


QUERIES = [
    "",
    "?release=1",
    "?against=1",
    "?release=2",
    "?sort=07_w4a16_gemm",
    "?status=withheld",
    "?q=held",
    "?verified=false",
    "?board=hard/H200&a=shown&b=held&c=withdrawn",
]


@pytest.mark.parametrize("reader", ["stranger", "auditor without a right to decide"])
def test_no_route_shows_a_score_that_may_not_be_read(runs: dict[str, Run], client: Client, reader: str) -> None:
    if reader != "stranger":
        client.force_login(make_user("eve"))
    secret = secrets_of(runs, client)
    assert all(len(digits) > 20 for digits in secret.values())
    fetched = 0
    for address in addresses(runs):
        for query in QUERIES[:1] if "codex" in address or "jobs/" in address else QUERIES:
            response = client.get(address + query)
            assert response.status_code < 500, address + query
            assert response.status_code != 429, "an answer that is refused shows nothing and proves nothing"
            content = content_of(response)
            fetched += response.status_code == 200
            for name, digits in secret.items():
                left = without_evidence(address, content, runs[name])
                found = [text for text in digits if text in left]
                assert not found, f"{address}{query} shows {found} of the {name} run"
    assert fetched > 50


def test_the_published_score_is_found_by_the_same_crawl(runs: dict[str, Run], client: Client) -> None:
    shown = digits_of(runs["published"])
    hits = [address for address in addresses(runs) if any(text in content_of(client.get(address)) for text in shown)]
    assert "/" in hits
    assert "/boards/hard/H200/" in hits


@pytest.mark.parametrize("name", ["pending", "rejected"])
def test_a_run_that_is_not_public_has_no_page_and_no_resource(runs: dict[str, Run], client: Client, name: str) -> None:
    run = runs[name]
    for address in (f"/runs/{run}/", f"/api/v1/runs/{run}", f"/runs/{run}/files/solution.py"):
        assert client.get(address).status_code == 404
    for address in ("/", "/runs/", "/withheld/", "/models/", "/api/v1/runs", "/boards/hard/H200/"):
        assert run.run_id.encode() not in content_of(client.get(address))


def test_a_withheld_run_shows_its_reported_number_in_its_marked_evidence_only(
    runs: dict[str, Run], client: Client
) -> None:
    run = runs["withheld"]
    content = client.get(f"/runs/{run}/").content
    (block,) = EVIDENCE.findall(content)
    assert run.reported_text.encode() in block
    assert b"not a result" in block.lower()
    assert client.get(f"/api/v1/runs/{run}").json()["evidence"]["is_result"] is False


def test_a_withdrawal_takes_effect_on_cached_answers_at_once(runs: dict[str, Run], client: Client, act: Act) -> None:
    addresses_ = ["/", "/boards/hard/H200/", "/api/v1/cells"]
    before = {address: client.get(address).headers.get("ETag") for address in addresses_}
    publishing.withdraw(runs["published"], act)
    digits = digits_of(runs["published"])
    for address in addresses_:
        headers = {"If-None-Match": before[address]} if before[address] else {}
        response = client.get(address, headers=headers)
        assert response.status_code == 200
        assert not [text for text in digits if text in content_of(response)]
