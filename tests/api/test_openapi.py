"""The OpenAPI document against the live views: every check of schemathesis, without and with a token.

PROOFLINE_EXAMPLES sets how many requests each operation gets; CI uses few, by hand it is run with 2000.
"""

import os
from collections.abc import Iterator

import pytest
import schemathesis
from django.core.wsgi import get_wsgi_application
from django.test import Client
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from schemathesis.generation.modes import GenerationMode

from leaderboard.api import openapi_document
from leaderboard.api.writing import AUDIT_TYPES, BUNDLE_TYPES
from tests.api.helpers import Site, TokenFor, pack_files
from tests.factories import make_audit_text, write_archive
from tests.grades import make_grade

EXAMPLES = int(os.environ.get("PROOFLINE_EXAMPLES", "10"))
QUICK = settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
OPERATIONS = [(path, method) for path, methods in openapi_document()["paths"].items() for method in methods]
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """A bundle as zip and as tar.gz, of a run that no other test has."""
    root = tmp_path_factory.mktemp("schemathesis")
    folder = write_archive(root, model="fuzzed")
    files = {str(path.relative_to(root)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    return pack_files(files), pack_files(files, "tar.gz")


@pytest.fixture
def document(site: Site, packed: tuple[bytes, bytes], settings) -> Iterator[schemathesis.BaseSchema]:
    """The document as served, with bodies that are valid for its content types, on a site with runs of each kind."""
    settings.RATE_LIMITS = {name: (0, window) for name, (_, window) in settings.RATE_LIMITS.items()}
    settings.ALLOWED_HOSTS = ["*"]
    for name in BUNDLE_TYPES:
        body = packed[0] if name == "application/zip" else packed[1]
        schemathesis.openapi.media_type(name, st.just(body))
    audits = st.sampled_from(["clean", "suspect"]).map(lambda word: make_audit_text(verdict=word).encode())
    for name in AUDIT_TYPES:
        schemathesis.openapi.media_type(name, audits)
    return schemathesis.openapi.from_wsgi("/api/v1/openapi.json", get_wsgi_application())


@pytest.mark.parametrize("has_token", [False, True], ids=["anonymous", "token"])
@pytest.mark.parametrize(("path", "method"), OPERATIONS, ids=[f"{method} {path}" for path, method in OPERATIONS])
def test_a_live_view_keeps_to_the_document(
    path: str, method: str, has_token: bool, document: schemathesis.BaseSchema, token_for: TokenFor, site: Site
) -> None:
    """Deck and GPU of an upload are left out where all is right: whether they fit the bundle is not in the document.

    Half of the right requests about runs and grades name one that exists.
    """
    operation = document[path][method]
    headers = token_for("read", "ingest", "audit", "verify") if has_token else {}
    known = _existing(site, token_for("verify"))
    modes = [operation.as_strategy(generation_mode=mode) for mode in _modes(operation)]

    @QUICK
    @given(case=st.one_of(modes), names=st.sampled_from([None, *known]))
    def fuzz(case: schemathesis.Case, names: dict[str, object] | None) -> None:
        assume(_stays_on_the_wire(case))
        is_right = case.meta.generation.mode == GenerationMode.POSITIVE
        if method == "post" and is_right and path.endswith("/runs"):
            case.query = {name: value for name, value in case.query.items() if name == "dry_run"}
        if is_right and names is not None:
            case.path_parameters = {name: names.get(name, value) for name, value in case.path_parameters.items()}
        case.call_and_validate(headers=headers)

    fuzz()


def _existing(site: Site, headers: dict[str, str]) -> list[dict[str, object]]:
    """The path parameters of some runs, each with a grade that waits or has ended."""
    found: list[dict[str, object]] = []
    for name in ("published", "withheld", "pending"):
        deck, gpu, run_id = str(site[name]).split("/")
        answer = Client().post(f"/api/v1/runs/{site[name]}/verifications", headers=headers)
        job = answer.json()["id"] if answer.status_code == 202 else make_grade(site[name]).job_id
        found.append({"deck": deck, "gpu": gpu, "run_id": run_id, "job": job})
    return found


def _stays_on_the_wire(case: schemathesis.Case) -> bool:
    """A wrong parameter without a value is in no address: the request that arrives would be a right one."""
    return all(value not in ([], {}) for value in (case.query or {}).values())


def _modes(operation: object) -> list[GenerationMode]:
    """Wrong requests exist only where there is something to get wrong."""
    has_input = bool(operation.query or operation.path_parameters or operation.body)  # type: ignore[attr-defined]
    return [GenerationMode.POSITIVE, GenerationMode.NEGATIVE] if has_input else [GenerationMode.POSITIVE]


def test_the_document_is_openapi_3_1_with_a_schema_for_every_json_answer(client: Client, db: None) -> None:
    served = client.get("/api/v1/openapi.json").json()
    assert served["openapi"] == "3.1.0"
    for path, methods in served["paths"].items():
        for operation in methods.values():
            assert {"429", "500"} <= operation["responses"].keys(), path
            for status, response in operation["responses"].items():
                for kind, content in response.get("content", {}).items():
                    assert content["schema"], (path, status)
                    assert (kind == "application/problem+json") == (int(status) >= 400)
