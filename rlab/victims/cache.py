"""Answers of a model on disk, by the content of the input, so that no input is paid for twice."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rlab.errors import OptionError

_SCHEMA = "CREATE TABLE IF NOT EXISTS answers (input BLOB PRIMARY KEY, scores BLOB NOT NULL) WITHOUT ROWID"


class AnswerCache:
    """A SQLite file of answers (k,); `model` identifies the model and how it is asked."""

    def __init__(self, path: Path, model: str) -> None:
        self.model = hashlib.blake2b(model.encode(), digest_size=32).digest()
        try:
            self.file = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
            self.file.execute("PRAGMA journal_mode=WAL")
            self.file.execute("PRAGMA synchronous=NORMAL")  # a crash of the machine may cost the last answers
            self.file.execute(_SCHEMA)
        except sqlite3.Error as error:
            raise OptionError(f"cannot use {str(path)!r} as a cache ({error}): name a new file") from None

    def keys(self, x: Tensor) -> list[bytes]:
        """x: (b, c, *size) -> a key for each row."""
        rows = np.ascontiguousarray(x.detach().cpu().float().numpy())
        shape = str(rows.shape[1:]).encode()
        return [hashlib.blake2b(shape + row.tobytes(), key=self.model, digest_size=32).digest() for row in rows]

    def read(self, keys: Sequence[bytes]) -> dict[bytes, Tensor]:
        """The answers that are known."""
        found = {}
        for key in dict.fromkeys(keys):
            row = self.file.execute("SELECT scores FROM answers WHERE input = ?", (key,)).fetchone()
            if row is not None:
                found[key] = torch.frombuffer(bytearray(row[0]), dtype=torch.float32)
        return found

    def write(self, answers: Mapping[bytes, Tensor]) -> None:
        """Store answers (k,); those that are not finite are left out, so that they are queried again."""
        rows = [(key, row.cpu().float().numpy().tobytes()) for key, row in answers.items() if row.isfinite().all()]
        self.file.execute("BEGIN")
        self.file.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?)", rows)
        self.file.execute("COMMIT")

    def close(self) -> None:
        self.file.close()
