"""Which GPU a child sees: one, by UUID, under the name that code uses which never names a device."""

import os
import sys

import pytest

from grading.card import Card, find_card, name_inside
from grading.warden.cores import split_cores
from tests.grader.cards import DRIVER_OF_TWO

FILES = ["nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "nvidia0", "nvidia1", "nvidiactl"]


@pytest.fixture
def two_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", DRIVER_OF_TWO)


@pytest.mark.usefixtures("two_cards")
def test_a_card_is_found_by_the_drivers_number() -> None:
    card = find_card("cuda:1")
    assert card == Card(1, 2, "GPU-b", 0)
    assert card.environment == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "GPU-b"}
    assert find_card("cuda") == Card(0, 2, "GPU-a", 1)
    assert find_card("cpu") is None


@pytest.mark.usefixtures("two_cards")
def test_no_other_cards_file_is_shown() -> None:
    card = find_card("cuda:1")
    assert card and card.device_files(FILES) == [name for name in FILES if name != "nvidia1"]


def test_without_the_drivers_library_the_number_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    card = find_card("cuda:1")
    assert card and card.environment["CUDA_VISIBLE_DEVICES"] == "1"
    assert card.device_files(FILES) == FILES


def test_a_file_that_is_not_there_hides_no_other() -> None:
    """In a container that was given one card, its file can bear another number than the driver says."""
    assert Card(0, 1, "GPU-a", 0).device_files(["nvidia3", "nvidiactl"]) == ["nvidia3", "nvidiactl"]


def test_a_child_calls_every_card_by_one_name() -> None:
    assert [name_inside(name) for name in ("cpu", "cuda", "cuda:0", "cuda:3")] == ["cpu", *["cuda:0"] * 3]


@pytest.mark.usefixtures("two_cards")
def test_grades_of_two_cards_share_no_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(32)))
    first, second = split_cores("cuda:0"), split_cores("cuda:1")
    assert (first.warden, first.oracle, first.worker) == ((14, 15), (12, 13), tuple(range(12)))
    assert (second.warden, second.oracle, second.worker) == ((30, 31), (28, 29), tuple(range(16, 28)))


@pytest.mark.usefixtures("two_cards")
def test_cards_with_too_few_cores_each_pin_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(12)))
    assert not split_cores("cuda:0").is_split
