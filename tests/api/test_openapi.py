"""The OpenAPI document against the live views: every check of schemathesis, without and with a token.

PROOFLINE_EXAMPLES sets how many requests each operation gets; CI uses few, by hand it is run with 2000.
"""

import os
from collections.abc import Iterator

import pytest
import schemathesis
from django.core.wsgi import get_wsgi_application
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from leaderboard.api.writing import AUDIT_TYPES, BUNDLE_TYPES
from tests.api.helpers import Site, TokenFor, pack_files
from tests.factories import make_audit_text, write_archive

EXAMPLES = int(os.environ.get("PROOFLINE_EXAMPLES", "10"))
QUICK = settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
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


schema = schemathesis.pytest.from_fixture("document")


@schema.parametrize()
@QUICK
def test_live_views_keep_to_the_document(case: schemathesis.Case) -> None:
    case.call_and_validate()


@schema.parametrize()
@QUICK
def test_live_views_keep_to_the_document_with_a_token(case: schemathesis.Case, token_for: TokenFor) -> None:
    case.call_and_validate(headers=token_for("read", "ingest", "audit"))
