"""Models behind an address: which protocol the server speaks, and what the encoding of inputs alone does to the scores."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
import yaml
from torch import Tensor

from rlab.data.batch import Batch
from rlab.data.load import DataOptions
from rlab.diagnosis.probe import PHASE, Probe, changed
from rlab.diagnosis.report import Diagnosis, Finding, Severity, note, warning
from rlab.errors import InputError, VictimError
from rlab.redact import redact
from rlab.storage.outside import expand
from rlab.victims.address import shown_address
from rlab.victims.http import HttpVictim
from rlab.victims.options import ModelOptions
from rlab.victims.resolve import load_model
from rlab.victims.sending import NoScores
from rlab.victims.template import DEFAULT, MODEL, Template, Writer, shipped

_ROWS = 2  # samples that each protocol is tried on
_CLEAR = 0.01  # change of a probability that is worth a warning


@dataclass(frozen=True)
class Protocol:
    """The protocol that a server answered."""

    model: ModelOptions
    victim: HttpVictim
    queries: int  # to find out
    findings: tuple[Finding, ...] = ()

    def added_to(self, report: Diagnosis) -> Diagnosis:
        """The report with the queries and findings of the search for the protocol."""
        findings = sorted([*self.findings, *report.findings], key=lambda finding: list(Severity).index(finding.level))
        return replace(report, findings=tuple(findings), queries=report.queries + self.queries)


def is_open(model: ModelOptions) -> bool:
    """Whether the address leaves the protocol open."""
    named = model.template or (model.http or {}).get("template")
    return model.name.startswith(("http://", "https://")) and named is None


def find_protocol(model: ModelOptions, batch: Batch) -> Protocol:
    """Try the known protocols on two samples until one gives scores, first at the address itself.

    If none does, the refusals are quoted; if another address of the host does, a finding says so.
    """
    queries, reasons, given = 0, dict[str, VictimError | InputError](), shown_address(expand(model.name))
    classes = () if model.names else batch.classes
    waiting = deque(_candidates(model, classes))
    while waiting:
        name, candidate = waiting.popleft()
        rows = Counter[str]()
        try:
            victim = load_model(candidate, batch.bounds)
            assert isinstance(victim, HttpVictim)
            rows = victim.rows
            once = changed(victim, retries=0, cache=None)
            scores = once(batch.x[:_ROWS], PHASE)
            if scores.isfinite().all() and scores.shape[1] > int(batch.y.max() if batch.y.dim() == 1 else 0):
                if once.reading.tells_labels:
                    victim.reading, victim.width = once.reading, scores.shape[1]
                findings = () if victim.name == given else (_elsewhere(given, victim.name, candidate, reasons),)
                return Protocol(candidate, victim, queries + rows.total(), findings)
            raise NoScores(f"it returned {scores.shape[1]} scores, which do not fit the data")
        except (VictimError, InputError) as error:
            reasons[name] = error
            if isinstance(error, NoScores) and classes and "classes=" not in (candidate.template or ""):
                named = f"{name.removesuffix('://')}(classes={list(classes)})"
                waiting.appendleft((name, candidate.model_copy(update={"template": named})))
        queries += rows.total()
    best, why = _nearest(reasons)
    raise VictimError(
        f"none of {len(reasons)} protocols gives scores for inputs of shape {batch.shape}; as {best}: {why}; describe "
        "the server in a template: docs/endpoints.md"
    )


def _nearest(reasons: Mapping[str, Exception]) -> tuple[str, str]:
    """The protocol that came nearest, and why it was refused."""
    best = next((name for name, why in reasons.items() if isinstance(why, NoScores)), DEFAULT)
    return best, str(reasons[best]).splitlines()[0]


def _elsewhere(given: str, found: str, model: ModelOptions, reasons: Mapping[str, Exception]) -> Finding:
    """The finding that another address than the given one answered."""
    best, why = _nearest({name: why for name, why in reasons.items() if "://" not in name})
    what = f"{given} gives no scores (as {best}: {why}), but {found} does"
    return warning("address", what, f"if that is your model, pass {model.name}; if not, describe yours in a template")


def _candidates(model: ModelOptions, classes: tuple[str, ...]) -> Iterator[tuple[str, ModelOptions]]:
    """The model by each protocol: first its address as it is, then the path of the address as the name of a model."""
    scheme, _, rest = model.name.partition("://")
    host, _, name = rest.partition("/")
    secure = "+https" if scheme == "https" else ""
    specs = {
        protocol: protocol if template.many or not classes else f"{protocol}(classes={list(classes)})"
        for protocol, template in shipped().items()
    }
    for protocol, template in shipped().items():
        if not template.asks:  # a chat API needs the name of a model
            yield protocol, model.model_copy(update={"template": specs[protocol]} if protocol != DEFAULT else {})
    for protocol, template in shipped().items():
        if template.path and bool(name) == (MODEL in template.names):
            spec = None if specs[protocol] == protocol else specs[protocol]
            address = f"{protocol}{secure}://{host}/{name}".rstrip("/")
            yield f"{protocol}://", model.model_copy(update={"name": address, "template": spec})


def configuration(model: ModelOptions, data: DataOptions) -> str:
    """The text of a file for --config."""
    values = {"model": model.plain(), "data": data.plain()}
    return yaml.safe_dump(redact(values), sort_keys=False, allow_unicode=True)


def encoding_findings(probe: Probe, scores: Tensor) -> list[Finding]:
    """What JPEG alone does to the scores, from the same inputs as PNG."""
    victim = probe.victim
    if not isinstance(victim, HttpVictim) or "jpeg" not in victim.template.encodings:
        return []
    template = lossless(victim.template)
    other = changed(victim, template=template, writer=Writer(template, victim.writer.bounds), retries=0)
    change = "write png instead of jpeg in the template: small distortions survive it"
    try:
        exact = other(probe.batch.x, PHASE)
    except (VictimError, InputError):
        what = "inputs travel as JPEG, and the server takes no PNG to compare with"
        return [note("encoding", what, "expect more noise")]
    moved = (victim.probabilities(scores) - victim.probabilities(exact)).abs().amax(1)
    flips = int((scores.argmax(1) != exact.argmax(1)).sum())
    what = (
        f"JPEG alone changes probabilities by {float(moved.median()):.2g} (median) to {float(moved.max()):.2g}, and the "
        f"prediction of {flips} of {len(moved)} samples"
    )
    serious = flips or float(torch.nan_to_num(moved, 1.0).max()) > _CLEAR
    return [(warning if serious else note)("encoding", what, change)]


def lossless(template: Template) -> Template:
    """The template with PNG instead of JPEG."""
    text = json.dumps({"body": template.body, "row": template.row})
    return template.changed(**json.loads(text.replace("{jpeg", "{png").replace("image/jpeg", "image/png")))
