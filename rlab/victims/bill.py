"""What queries cost: rows that were answered, lost or taken from a cache, their price, and the cache itself."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rlab.errors import OptionError

_SECONDS = {"s": 1.0, "second": 1.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0}
_SCHEMA = "CREATE TABLE IF NOT EXISTS answers (input BLOB PRIMARY KEY, scores BLOB NOT NULL) WITHOUT ROWID"
_NUMBER = re.compile(r"\s*(\d+\.?\d*(e-?\d+)?|\.\d+)\s*")


def per_second(rate: float | str | None) -> float | None:
    """10, '10/s', '600/min' or '5000/h' -> requests per second."""
    return None if rate is None else _per(rate, _SECONDS, 1e-9, "a rate above 0 such as 10, 10/s or 600/min")


def per_query(price: float | str | None) -> float:
    """0.0015 or '0.0015/query' -> the price of a query."""
    return _per(price or 0, {"query": 1.0, "row": 1.0}, 0.0, "a price per query such as 0.0015 or 0.0015/query")


def _per(value: float | str, units: Mapping[str, float], least: float, expected: str) -> float:
    """'600/min' -> 10, if a minute is 60 of the first unit, which is the default."""
    number, _, unit = str(value).partition("/")
    size = units.get(unit.strip() or next(iter(units)))
    if isinstance(value, bool) or size is None or not _NUMBER.fullmatch(number) or float(number) < least:
        raise OptionError(f"expected {expected}, got {value!r}")
    return float(number) / size


@dataclass
class Bill:
    """Counts of one victim and its copies. Servers charge for answers, and perhaps for requests whose answer was lost."""

    price: float = 0.0  # of a query
    most: float | None = None  # cost
    answered: int = 0  # rows
    under_way: int = 0  # rows
    refused: int = 0  # rows that the server put off, e.g. with status 429 or 503
    lost: int = 0  # rows without an answer
    cached: int = 0  # rows whose answer came from the cache

    def __post_init__(self) -> None:
        if self.most is not None and not self.price:
            raise OptionError(f"a maximum cost of {self.most:g} needs the price of a query: pass price=0.0015, too")

    @property
    def cost(self) -> float:
        return self.price * self.answered

    def check(self, rows: int) -> None:
        """Refuse to send this many more rows if all that were sent could cost too much."""
        possible = self.price * (self.answered + self.lost + self.under_way + rows)
        if self.most is not None and possible > self.most * (1 + 1e-9):
            raise OptionError(
                f"the next request could raise the cost above {self.most:g}, after {self.cost:.6g} for {self.answered:,} "
                "queries: pass a larger --max-cost to go on"
            )

    def __str__(self) -> str:
        """One sentence; empty if there is nothing to say beyond the number of queries."""
        parts = [f"{self.answered:,} answered queries cost {self.cost:.6g}"] if self.price else []
        if again := self.refused + self.lost:
            unsure = f" (those without an answer may have cost up to {self.price * self.lost:.6g} more)"
            parts.append(f"{again:,} rows were sent again{unsure if self.price and self.lost else ''}")
        if self.cached:
            parts.append(f"{self.cached:,} answers came from the cache")
        return "; ".join(parts)


class AnswerCache:
    """A SQLite file of answers (k,) by the content of the input, so that no input is paid for twice.

    `model` identifies the model and how it is asked.
    """

    def __init__(self, path: Path, model: str) -> None:
        self.model = hashlib.blake2b(model.encode(), digest_size=32).digest()
        try:
            self.file = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
            self.file.execute("PRAGMA journal_mode=WAL")
            self.file.execute("PRAGMA synchronous=NORMAL")  # a crash of the machine may cost the last answers
            self.file.execute(_SCHEMA)
        except sqlite3.Error as error:
            raise OptionError(f"cannot use {str(path)!r} as a cache ({error}): name a new file") from None

    def _keys(self, x: Tensor) -> list[bytes]:
        rows = np.ascontiguousarray(x.detach().cpu().float().numpy())
        shape = str(rows.shape[1:]).encode()
        return [hashlib.blake2b(shape + row.tobytes(), key=self.model, digest_size=32).digest() for row in rows]

    def read(self, x: Tensor) -> dict[int, Tensor]:
        """x: (b, c, *size) -> the answers that are known, by their row."""
        found = {}
        for row, key in enumerate(self._keys(x)):
            if known := self.file.execute("SELECT scores FROM answers WHERE input = ?", (key,)).fetchone():
                found[row] = torch.frombuffer(bytearray(known[0]), dtype=torch.float32)
        return found

    def write(self, x: Tensor, answers: Tensor) -> None:
        """Store answers (b, k); those that are not finite are left out, so that they are queried again."""
        rows = [
            (key, row.cpu().float().numpy().tobytes())
            for key, row in zip(self._keys(x), answers, strict=True)
            if row.isfinite().all()
        ]
        try:
            with self.file:  # which commits, or rolls back
                self.file.execute("BEGIN")
                self.file.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?)", rows)
        except sqlite3.Error as error:
            raise OptionError(f"cannot write to the cache ({error}): mend this and run the command again") from None

    def close(self) -> None:
        self.file.close()
