"""Every cheat is caught by the rule that its header names, and nothing honest raises anything."""

import os

import pytest

from grading.warden.grade import grade
from grading.warden.oraclehost import OracleHost
from tests.grader.support import Candidate, candidates, files_of, make_request

CHEATS, HONEST = list(candidates("cheats")), list(candidates("honest"))
SLOW = {"h24_interpreted_triton"}
COMPILED = {"__pycache__/reference.cpython-311.pyc": b"\xa7\r\r\n"}


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name)
def test_a_cheat_is_caught_by_the_named_rule(cheat: Candidate, host: OracleHost) -> None:
    bundle = files_of(cheat.path) | (COMPILED if cheat.path.is_dir() else {})
    done = grade(make_request(cheat.op, bundle), host=host)
    fired = [(item.rule, item.word, item.message) for item in done.verdict.fired]
    assert done.verdict.word == cheat.expect, (fired, done.outputs)
    assert not cheat.rule or (cheat.rule, cheat.expect) in [item[:2] for item in fired], fired
    assert host.is_alive


@pytest.mark.parametrize("honest", HONEST, ids=lambda honest: honest.name)
def test_an_honest_solution_raises_nothing(honest: Candidate, host: OracleHost) -> None:
    if honest.name in SLOW and not os.environ.get("PROOFLINE_SLOW"):
        pytest.skip("interpreted kernels take half a minute; set PROOFLINE_SLOW to run it")
    done = grade(make_request(honest.op, files_of(honest.path)), host=host)
    alerts = [item for item in done.verdict.fired if item.word != "verified_note"]
    assert alerts == [], done.outputs
    assert done.verdict.word in ("verified", "verified_note")
    assert [taken.ended for taken in done.evidence.passes] == ["complete"]


def test_what_a_bundle_patched_is_in_the_evidence_and_decides_nothing(host: OracleHost) -> None:
    flags, judges = (next(cheat for cheat in CHEATS if cheat.name.startswith(name)) for name in ("c29", "c13"))
    done = grade(make_request(flags.op, files_of(flags.path)), host=host)
    changed = " ".join(done.evidence.passes[0].changed_at_import)
    assert "torch.get_default_dtype()" in changed
    assert "torch.initial_seed()" in changed
    done = grade(make_request(judges.op, files_of(judges.path)), host=host)
    changed = " ".join(done.evidence.passes[0].changed_at_import)
    assert "time.perf_counter" in changed
    assert "torch.allclose" in changed
