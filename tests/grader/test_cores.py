"""Who keeps to which cores during a grade."""

import os

import pytest

from grading.warden.cores import keep_to, split_cores


def test_on_a_large_host_nobody_shares_a_core_or_its_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    cores = split_cores("cuda:0")
    assert (cores.warden, cores.oracle, cores.worker) == ((14, 15), (12, 13), tuple(range(12)))
    assert cores.is_split


def test_a_small_host_and_a_processor_grade_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    assert not split_cores("cuda:0").is_split
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    assert not split_cores("cpu").is_split


def test_cores_are_given_back_after_a_pass() -> None:
    before = os.sched_getaffinity(0)
    with pytest.raises(ValueError, match="stop"), keep_to((min(before),)):
        assert os.sched_getaffinity(0) == {min(before)}
        raise ValueError("stop")
    assert os.sched_getaffinity(0) == before
