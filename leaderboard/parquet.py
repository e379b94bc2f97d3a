"""Parquet, for those who installed pyarrow: the same rows as the line-by-line JSON, as one table."""

import io
from collections.abc import Iterable

from leaderboard.exports import join_lines


class ParquetError(RuntimeError):
    """Parquet was asked for and cannot be written; the message says what to install."""


def to_parquet(lines: Iterable[bytes]) -> bytes:
    """Return JSON lines as one Parquet file; nested objects stay nested, what is null in every row has the null type.

    Raises ParquetError where pyarrow is not installed, or there is no row to take the columns from.
    """
    try:
        from pyarrow import json as arrow_json
        from pyarrow import parquet
    except ImportError as error:
        raise ParquetError("parquet needs pyarrow: pip install -r leaderboard/requirements-parquet.txt") from error
    data = b"".join(join_lines(lines))
    if not data:
        raise ParquetError("there is no row, so there are no columns to write")
    written = io.BytesIO()
    parquet.write_table(arrow_json.read_json(io.BytesIO(data)), written, compression="zstd")
    return written.getvalue()
