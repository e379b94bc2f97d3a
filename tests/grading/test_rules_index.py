"""The index of other runs: it finds what brute force finds, and its cost per run does not grow."""

import random
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from grading.integrity.crossrun import CAP, Index, Signature
from grading.source.shingles import MAX_HASHES, Sketch, shared_share, sketch_source, source_digests

SOURCE = "".join(f"a{row} = load(p + {row}) * {row}\n" for row in range(60))


def sketch(chance: random.Random, shared: list[int], own: int) -> Sketch:
    hashes = sorted({*shared, *(chance.getrandbits(64) for _ in range(own))})
    return Sketch(tuple(hashes[:MAX_HASHES]), 2**64)


def make(order: int, marks: Sketch, **fields: object) -> Signature:
    return Signature(
        key=str(order), order=order, problem="p", gpu="g", model=f"m{order}", author=f"a{order}", sketch=marks, **fields
    )


def test_it_finds_every_source_that_shares_half() -> None:
    chance = random.Random(1)
    shared = [chance.getrandbits(64) for _ in range(60)]
    runs = [make(order, sketch(chance, [], 120)) for order in range(300)]
    runs.append(make(300, sketch(chance, shared, 60)))
    runs.append(make(301, sketch(chance, shared, 60)))
    found = Index(runs).neighbours(runs[-1])
    assert [twin.key for twin in found.similar] == ["300"]
    assert 0.45 < found.similar[0].share < 0.55
    assert Index(runs).neighbours(runs[0]).similar == ()


def test_what_dozens_share_is_a_skeleton_and_not_a_copy() -> None:
    chance = random.Random(2)
    common = [chance.getrandbits(64) for _ in range(80)]
    runs = [make(order, sketch(chance, common, 40)) for order in range(CAP + 20)]
    assert Index(runs).neighbours(runs[-1]).similar == ()


def test_a_later_run_never_changes_what_an_earlier_one_shares() -> None:
    chance = random.Random(3)
    first = make(0, sketch(chance, [], 50), form="f", log="l", times="t", seed="s")
    copies = [
        make(order, first.sketch or sketch(chance, [], 1), form="f", log="l", times="t", seed="s") for order in (1, 2)
    ]
    assert Index([first]).neighbours(first) == Index([first, *copies]).neighbours(first)
    assert [twin.key for twin in Index([first, *copies]).neighbours(copies[1]).copies] == ["0", "1"]


def test_looking_up_costs_the_same_among_many() -> None:
    chance = random.Random(4)
    runs = [make(order, sketch(chance, [], 60), form=str(order % 500), log=str(order)) for order in range(20_000)]

    def seconds(index: Index) -> float:
        start = time.perf_counter()
        for run in runs[:300]:
            index.neighbours(run)
        return time.perf_counter() - start

    few, many = Index(runs[:1_000]), Index(runs)
    assert min(seconds(many) for _ in range(3)) < 8 * min(seconds(few) for _ in range(3)) + 0.05


def test_the_form_of_a_source_ignores_names_comments_and_layout() -> None:
    changed = "# mine\n" + SOURCE.replace("a", "b").replace("lobd", "load").replace(" = ", "=")
    assert source_digests({"solution.py": SOURCE.encode()})[1] == source_digests({"solution.py": changed.encode()})[1]
    other = SOURCE.replace("* 7", "+ 7")
    assert source_digests({"solution.py": SOURCE.encode()})[1] != source_digests({"solution.py": other.encode()})[1]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 58))
def test_the_shared_share_is_the_share_of_whole_shingles(cut: int) -> None:
    part = "".join(SOURCE.splitlines(True)[:cut])
    whole, piece = sketch_source({"solution.py": SOURCE.encode()}), sketch_source({"solution.py": part.encode()})
    assert shared_share(whole, piece) == max(0, cut - 2) / 58
    assert shared_share(piece, whole) == (1.0 if cut > 2 else 0.0)
