"""Parquet exports, where pyarrow is installed."""

import builtins
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from tests.api.helpers import Site


def test_a_parquet_file_holds_the_rows_of_the_list_and_no_withheld_score(site: Site, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is an optional extra")
    path = tmp_path / "cells.parquet"
    call_command("export", "cells", "--format", "parquet", "--output", str(path))
    rows = parquet.read_table(path).to_pylist()
    scores = {row["entrant"]["model"]["name"]: row["score"] for row in rows}
    assert scores["shown"] > 0
    assert scores["held"] is None
    assert {row["status"] for row in rows if row["score"] is None} <= {"withheld", "failed"}


def test_parquet_on_standard_output_is_refused(site: Site) -> None:
    with pytest.raises(CommandError, match="--output"):
        call_command("export", "cells", "--format", "parquet")


def test_without_pyarrow_the_error_says_what_to_install(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(CommandError, match="requirements-parquet"):
        call_command("export", "runs", "--format", "parquet", "--output", str(tmp_path / "x.parquet"))
