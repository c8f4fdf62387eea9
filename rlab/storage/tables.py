"""Large tables: written in groups of rows, read column by column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rlab.redact import redact
from rlab.storage.files import SETTING, replacing

ROW_GROUP = 4096  # rows joined in memory before they are written


@dataclass(frozen=True)
class StoredTable:
    """A Parquet file whose columns are read on access."""

    file: pq.ParquetFile

    @property
    def column_names(self) -> list[str]:
        return list(self.file.schema_arrow.names)

    @property
    def num_rows(self) -> int:
        return int(self.file.metadata.num_rows)

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        column = self.file.read([name], use_threads=False)[name]
        release()
        return column


def release() -> None:
    """Return memory to the system that Arrow would keep for its next column."""
    pa.default_memory_pool().release_unused()


def write_tables(path: Path, parts: Iterable[pa.Table], setting: str) -> None:
    """Write tables with the same columns, which hold no secrets, as one file."""
    with replacing(path) as file, ExitStack() as stack:
        writer: Any = None
        for table in _grouped(parts):
            if writer is None:
                schema = table.schema.with_metadata({SETTING: redact(setting)})
                texts = [column.name for column in schema if pa.types.is_string(column.type)]
                writer = stack.enter_context(pq.ParquetWriter(file, schema, use_dictionary=texts))
            writer.write_table(table.replace_schema_metadata(schema.metadata))
    release()


def _grouped(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    held, rows = list[pa.Table](), 0
    for part in parts:
        held.append(part.replace_schema_metadata(None))
        rows += part.num_rows
        if rows >= ROW_GROUP:
            yield pa.concat_tables(held)
            held, rows = [], 0
    if held:
        yield pa.concat_tables(held)
