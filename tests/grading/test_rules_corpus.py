"""The alerts on real results, frozen: any change of a rule shows here as a difference by run.

Write the list anew with ``python -m tests.rulebook.archive`` and read the difference before keeping it.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.rulebook.archive import FROZEN, alerts

DEMO = Path(__file__).parents[2] / "leaderboard" / "demo" / "runs"


@pytest.mark.corpus
def test_the_alert_list_is_the_frozen_one(corpus: Path) -> None:
    found, frozen = alerts(corpus / "runs"), json.loads(FROZEN.read_text())
    assert {key: codes for key, codes in found.items() if codes != frozen.get(key)} == {}
    assert found.keys() == frozen.keys()


def test_the_frozen_list_has_the_known_counts_and_no_contradiction_within_a_shape() -> None:
    counts = Counter(code for codes in json.loads(FROZEN.read_text()).values() for code in codes)
    assert counts["shape.inconsistent"] == 0
    assert counts["score.disagrees"] == 21
    assert counts["score.stale_peaks"] == 4
    assert counts["score.not_recomputable"] == 25
    assert counts["check.failed"] == 24
    assert counts["shape.below_floor"] == 1


def test_our_own_measurements_raise_no_alert() -> None:
    for key, codes in alerts(DEMO).items():
        if "control-broken" in key:
            assert "log.forged" in codes or "check.failed" in codes
        else:
            assert codes == [], key
