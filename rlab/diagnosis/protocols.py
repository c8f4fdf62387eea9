"""Models behind an address: which protocol the server speaks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import yaml

from rlab.data.batch import Batch
from rlab.data.load import DataOptions
from rlab.diagnosis.probe import PHASE, Probe
from rlab.diagnosis.report import Diagnosis, Finding, warning
from rlab.errors import InputError, VictimError
from rlab.redact import redact
from rlab.storage.outside import expand
from rlab.victims.address import shown_address
from rlab.victims.base import Victim
from rlab.victims.failures import NoScores
from rlab.victims.http import HttpVictim
from rlab.victims.options import ModelOptions
from rlab.victims.resolve import load_model
from rlab.victims.template import DEFAULT, MODEL, Template, shipped

_ROWS = 2  # samples that each protocol is tried on


@dataclass(frozen=True)
class Protocol:
    """A model with the protocol that its server answered."""

    model: ModelOptions | None  # None if its options left nothing open
    victim: Victim
    queries: int = 0  # to find out
    findings: tuple[Finding, ...] = ()

    def added_to(self, report: Diagnosis) -> Diagnosis:
        """The report with the queries and findings of the search for the protocol."""
        found = (*self.findings, *report.findings, *report.passed)
        return Diagnosis.of(found, report.queries + self.queries, report.accuracy)


def known_protocol(model: object, victim: Victim, batch: Batch) -> Protocol:
    """The model and its victim as they are, or by another protocol if the address leaves it open."""
    if not isinstance(model, ModelOptions) or not model.name.startswith(("http://", "https://")):
        return Protocol(None, victim)
    return find_protocol(model, batch) if model.template is None else Protocol(None, victim)


def find_protocol(model: ModelOptions, batch: Batch) -> Protocol:
    """Try the known protocols on two samples until one gives scores, first at the address itself.

    If none does, the refusals are quoted; if another address of the host does, a finding says so.
    """
    queries, reasons, given = 0, dict[str, VictimError | InputError](), shown_address(expand(model.name))
    classes = () if model.names else batch.classes
    for name, address, template in _places(model):
        protocol = name.removesuffix("://")
        listed = f"{protocol}(classes={list(classes)})"
        plain = protocol if name == protocol != DEFAULT else None
        for spec in [plain] if not classes else [plain, listed] if template.many else [listed]:
            candidate, rows = model.model_copy(update={"name": address, "template": spec}), Counter[str]()
            try:
                victim = load_model(candidate, batch.bounds)
                assert isinstance(victim, HttpVictim)
                rows = victim.rows
                once = victim.read_as()
                once.cache, once.retries = None, 0
                scores = once(batch.x[:_ROWS], PHASE)
                if scores.shape[1] <= int(batch.y.max() if batch.y.dim() == 1 else 0) or not scores.isfinite().all():
                    raise NoScores(f"it returned {scores.shape[1]} scores, which do not fit the data")
            except (VictimError, InputError) as error:
                queries, reasons[name] = queries + rows.total(), error
                if not isinstance(error, NoScores):
                    break  # names of classes would not help
                continue
            if once.reading.tells_labels:
                victim.reading, victim.width = once.reading, scores.shape[1]
            findings = () if victim.name == given else (_elsewhere(given, victim.name, candidate, reasons),)
            return Protocol(candidate, victim, queries + rows.total(), findings)
    best, why = _nearest(reasons)
    raise VictimError(
        f"none of {len(reasons)} protocols gives scores for inputs of shape {batch.shape}; as {best}: {why}; describe "
        "the server in a template: docs/endpoints.md"
    )


def _places(model: ModelOptions) -> Iterator[tuple[str, str, Template]]:
    """Protocols with the address: first as it is, then with the path of the address as the name of a model."""
    scheme, _, rest = model.name.partition("://")
    host, _, name = rest.partition("/")
    secure = "+https" if scheme == "https" else ""
    for protocol, template in shipped().items():
        if not template.asks:  # a chat API needs the name of a model
            yield protocol, model.name, template
    for protocol, template in shipped().items():
        if template.path and bool(name) == (MODEL in template.names):
            yield f"{protocol}://", f"{protocol}{secure}://{host}/{name}".rstrip("/"), template


def _nearest(reasons: Mapping[str, Exception]) -> tuple[str, str]:
    """The protocol that came nearest, and why it was refused."""
    best = next((name for name, why in reasons.items() if isinstance(why, NoScores)), DEFAULT)
    return best, str(reasons[best]).splitlines()[0]


def _elsewhere(given: str, found: str, model: ModelOptions, reasons: Mapping[str, Exception]) -> Finding:
    """The finding that another address than the given one answered."""
    best, why = _nearest({name: why for name, why in reasons.items() if "://" not in name})
    what = f"{given} gives no scores (as {best}: {why}), but {found} does"
    return warning("address", what, f"if that is your model, pass {model.name}; if not, describe yours in a template")


def configuration(model: ModelOptions, data: DataOptions) -> str:
    """The text of a file for --config."""
    values = {"model": model.plain(), "data": data.plain()}
    return yaml.safe_dump(redact(values), sort_keys=False, allow_unicode=True)


def encoding_findings(probe: Probe) -> list[Finding]:
    if not isinstance(probe.victim, HttpVictim) or "jpeg" not in probe.victim.template.encodings:
        return []
    what = "inputs travel as JPEG, which changes them: small distortions do not survive it"
    return [warning("encoding", what, "write png instead of jpeg in the template")]
