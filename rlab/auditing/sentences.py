"""Requirements used to be English sentences; whoever still writes one is shown the fields that say the same."""

from __future__ import annotations

import re
from typing import Any

from rlab.benchmarking.metrics import METRICS
from rlab.benchmarking.requirements import parse_requirement

EXAMPLE = "{metric: success, at: {snr: 20dB}, below: 20%}"
_NAMES = "|".join(name.replace("_", " ") for name in sorted(METRICS, key=len, reverse=True))
_SENTENCE = re.compile(
    rf"(?:\w+: )?(?P<metric>{_NAMES}) (?P<relation>at least|at most|below|above) (?P<limit>[\d.]+ ?%?)"
    r"(?: at (?P<kind>snr|l2) (?P<bound>[\d.]+ ?(?:db)?))?",
    re.IGNORECASE,
)


def structured(text: Any) -> Any:
    """The command line's short form 'x1.5=0.3' is a requirement; a sentence is refused, and told how to be written."""
    if not isinstance(text, str):
        return text
    if "=" in text and " " not in text.strip():
        return parse_requirement(text.strip())
    raise ValueError(f"a requirement is not a sentence any more: in place of {text!r} write {_in_fields(text)}")


def _in_fields(text: str) -> str:
    """The same as fields where it is simple enough, else an example."""
    plain = " ".join(text.split())
    if none := re.fullmatch(r"(?:\w+: )?no (errors|warnings|mismatches)", plain, re.IGNORECASE):
        return f"{{metric: {none[1].lower()}, at_most: 0}}"
    match = _SENTENCE.fullmatch(plain)
    if match is None:
        return f"fields such as {EXAMPLE} (docs/audit.md lists them)"
    at = f"at: {{{match['kind'].lower()}: {match['bound'].replace(' ', '')}}}, " if match["kind"] else ""
    metric, relation = (match[part].lower().replace(" ", "_") for part in ("metric", "relation"))
    return f"{{metric: {metric}, {at}{relation}: {match['limit'].replace(' ', '')}}}"
