"""Decks, problems, GPUs and models as data: what is accepted, and what is refused with which words."""

import shutil
from pathlib import Path

import pytest

from grading.hardware import identify, load_gpus
from grading.names import entrant_slug, find_model, load_models, make_slug
from grading.problem import DECKS, load_decks, load_problem
from grading.tomldata import CatalogueError
from grading.yardstick import yardstick


@pytest.fixture
def decks(tmp_path: Path) -> Path:
    """A copy of the hard deck's data, to be broken."""
    shutil.copytree(
        DECKS / "hard", tmp_path / "hard", ignore=shutil.ignore_patterns("*.py", "solutions", "__pycache__")
    )
    return tmp_path


def edit(decks: Path, old: str, new: str) -> None:
    path = decks / "hard" / "07_w4a16_gemm" / "problem.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_the_copied_deck_loads(decks: Path) -> None:
    assert load_decks(decks)["hard"].problems == load_decks()["hard"].problems


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("shape_key = ", 'colour = "red"\nshape_key = ', "colour"),
        ('regime = "memory"', 'regime = "memroy"', "memroy"),
        ("warmup = 10", 'warmup = "ten"', "warmup"),
        ('flops = "2*M*N*K"', 'flops = "2*M*N*Q"', "'Q'"),
        ('flops = "2*M*N*K"', 'flops = "2**M**N"', "exponent"),
        ('flops = "2*M*N*K"', "flops = \"__import__('os')\"", "metric.flops"),
        ('flops = "2*M*N*K"', 'flops = ""', "metric.flops is missing"),
        ("[[shapes]]\nM = 1", "[[shapes]]\nMM = 1", "lacks 'M'"),
        ('id = "07_w4a16_gemm"', 'id = "08_w4a16_gemm"', "07_w4a16_gemm"),
        ('shape_key = ""', 'shape_key = "ctx"', "shape_key"),
        ("[timing]", "[timing", "problem.toml"),
    ],
)
def test_a_fault_is_named_with_its_file(decks: Path, old: str, new: str, words: str) -> None:
    edit(decks, old, new)
    with pytest.raises(CatalogueError, match=r"problem\.toml") as caught:
        load_decks(decks)
    assert words in str(caught.value)


def test_an_unknown_file_in_a_problem_folder_is_refused(decks: Path) -> None:
    (decks / "hard" / "07_w4a16_gemm" / "check.py").write_text("")
    with pytest.raises(CatalogueError, match=r"check\.py: unknown file"):
        load_decks(decks)


def test_a_board_of_an_unknown_gpu_is_refused(decks: Path) -> None:
    path = decks / "hard" / "deck.toml"
    path.write_text(path.read_text().replace('"B200"', '"B2000"'))
    with pytest.raises(CatalogueError, match="B2000"):
        load_decks(decks)


def test_the_version_follows_what_can_change_a_score_and_not_the_prose(decks: Path) -> None:
    before = load_decks(decks)["hard"].problems["07_w4a16_gemm"].version
    edit(decks, 'title = "', 'title = "New ')
    load_decks.cache_clear()
    assert load_decks(decks)["hard"].problems["07_w4a16_gemm"].version == before
    edit(decks, "warmup = 10", "warmup = 11")
    load_decks.cache_clear()
    assert load_decks(decks)["hard"].problems["07_w4a16_gemm"].version != before


def test_an_unknown_problem_is_named_with_what_exists() -> None:
    with pytest.raises(CatalogueError, match="01_fp8_gemm"):
        load_problem("hard", "99_nothing")


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("NVIDIA H200", ("H200",)),
        ("NVIDIA H200 NVL", ()),
        ("NVIDIA H100 80GB HBM3", ("H100_SXM",)),
        ("NVIDIA H100 PCIe", ("H100",)),
        ("NVIDIA H100 NVL", ()),
        ("H100", ()),
        ("NVIDIA B200", ("B200",)),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", ("RTX_PRO_6000",)),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", ("RTX_PRO_6000",)),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", ()),
        ("NVIDIA RTX 6000 Ada Generation", ()),
        ("NVIDIA GeForce RTX 3090", ()),
        ("", ()),
    ],
)
def test_a_device_name_proves_one_gpu_or_none(name: str, keys: tuple[str, ...]) -> None:
    assert identify(name) == keys


def test_the_peaks_before_and_after_the_correction_are_both_kept() -> None:
    tables = load_gpus()["RTX_PRO_6000"].peaks
    assert [table.tflops["bf16"] for table in tables] == [200, 500]
    assert str(tables[1].since) == "2026-06-14"


@pytest.mark.parametrize(
    ("deck", "problem", "gpu", "ceiling"),
    [
        ("hard", "01_fp8_gemm", "H200", 0.626),
        ("hard", "02_kda_cutlass", "H200", 0.413),
        ("hard", "03_paged_attention", "H200", 1.0),
        ("hard", "06_sonic_moe_swiglu", "H200", 0.1575),
        ("hard", "07_w4a16_gemm", "H200", 0.776),
        ("hard", "01_fp8_gemm", "H100", 0.540),
        ("hard", "06_sonic_moe_swiglu", "H100", 0.131),
        ("cuda", "01_glm52_fused_moe", "H200", 0.1805),
        ("cuda", "02_deepseek_nsa", "H200", 6.87),
        ("mini", "04_flash_attention", "H100_SXM", 0.9998),
    ],
)
def test_the_floors_give_the_known_ceilings(deck: str, problem: str, gpu: str, ceiling: float) -> None:
    data, table = load_problem(deck, problem), load_gpus()[gpu].current
    stick = yardstick(data, gpu, table)
    product = 1.0
    for shape in stick.shapes:
        work = shape.flops / 1e9 if data.metric.regime == "compute" else shape.bytes / 1e6
        product *= work / shape.floor_ms / stick.peak
    assert product ** (1 / len(stick.shapes)) == pytest.approx(ceiling, rel=4e-3)


def test_model_strings_of_one_model_are_folded_and_variants_kept_apart() -> None:
    assert find_model("anthropic/claude-fable-5") is find_model("claude-fable-5")
    assert find_model("kinetic-0715") is not find_model("kinetic-0715[1m]")
    assert find_model("nobody-knows-this") is None
    assert all(entry.slug.isascii() for entry in load_models().values())


@pytest.mark.parametrize("text", ["智谱", "🚀", "---", "", "GPT-5", "a/b", "x" * 500, "\u202eevil", "\ud83d"])
def test_a_slug_is_short_ascii_whatever_the_name(text: str) -> None:
    slug = make_slug(text)
    assert slug.isascii()
    assert 0 < len(slug) <= 70


def test_slugs_of_different_names_differ() -> None:
    names = ["GPT-5", "gpt-5", "gpt 5", "Gpt_5", "智谱", "智"]
    assert len({make_slug(name) for name in names}) == len(names)
    assert entrant_slug("m", "h", "") != entrant_slug("m", "h", "high")
