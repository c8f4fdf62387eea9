"""Write docs/claims.md, the source of every figure in README.md and docs/results.md.

python -m benchmarks.claims                     # write the page from benchmarks/results
python -m benchmarks.claims --check             # only list the figures that the page does not hold

Each figure is looked up by page, section, row and column of benchmarks/results, so a new results page changes the claims too.
`tests/benchmarks/test_claims.py` fails if README or docs/results.md shows a figure that is not on the page.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.harness import command, finish
from benchmarks.raw import HERE
from benchmarks.tables import Results, tables_in
from benchmarks.tables import table as markdown

ROOT = HERE.parent
README, PAGE = ROOT / "README.md", ROOT / "docs" / "claims.md"
SHOWN = (README, ROOT / "docs" / "results.md")  # the documents whose figures must be on the page
# README's table, written from the same results
GENERATED = r"<!-- python -m benchmarks.headline: begin -->.*?<!-- end -->"
SETTINGS = ("0", "1", "2", "20", "100", "200", "255", "1,000", "3.11", "3.12", "3.13")  # figures that are no results
NEVER = "no"
SCORES = "scores"
INFINITE = "∞"
EXPLAIN_SEEN = (
    "no; settings of `belief` were chosen on other pets and beats, settings of `credit` also on some of these beats"
)
EXPLAIN_NEEDS = (
    "ours, RISE, Sobol, HSIC, Kernel SHAP, LIME, occlusion: scores; CAMs and integrated gradients: layers and gradients"
)
NUMBER = re.compile(r"(?<![\w.,\-/@:])\d[\d,]*(?:\.\d+)?%?(?![\w\-/:]|\.\d)")


@dataclass(frozen=True)
class Claim:
    """Figures that belong together; `seen`: whether the training of what is measured used the model."""

    title: str
    figures: Sequence[str]
    seen: str = NEVER
    needs: str = SCORES  # what the attack, or the one it is compared with, needs


@dataclass(frozen=True)
class Source:
    """One command's results."""

    page: str
    command: str
    data: str
    hardware: str
    claims: Sequence[Claim]


def default_command() -> Source:
    """The rows that `benchmarks.default` also writes into docs/results.md."""
    claims, net = [], ""
    for name, cells in _listed(Results.read("default.md").text):
        before, colon, policy = name.rpartition(": ")
        net = before if colon else net
        seen = "yes" if "trained with" in net else NEVER
        claims.append(Claim(f"{net}: {policy}", cells, seen if policy == "`auto`" else "nothing trained"))
    data = "CIFAR-10 test images 0-99"
    return _source("default", data, "a CPU", claims)


def _listed(text: str) -> Iterator[tuple[str, list[str]]]:
    """Name and 'column: cell' of each row of a page's only table, whose names may repeat."""
    ((heading, rows),) = tables_in(text)
    for cells in rows:
        yield cells[0], [f"{column}: {cell}" for column, cell in zip(heading[1:], cells[1:], strict=True)]


QUERIES = ("5", "20", "50", "200")
WITHIN, NEEDS = "distance within queries", "L2 within needs"
OTHERS = ("square", "random")
OURS = ("pixels", "palette", "auto", "belief")  # how our rows beside peers begin
PHOTO = "by a prior that we do not ship"


def anytime() -> Source:
    """Each case: every policy, the best of the others at each number of queries, and what each part contributes."""
    page, claims = Results.read("anytime.md"), []
    for section in page.sections():
        rows = page.rows(section)
        others = {name: rows[name] for name in OTHERS if name in rows}
        if not others:
            continue
        seen = PHOTO if section.startswith("lite0") else NEVER
        for name in (name for name in rows if name not in (*others, "aim", "ratio to the best other")):
            figures = [f"within {q}: {rows[name][f'{WITHIN} {q}']}" for q in QUERIES]
            claims.append(Claim(f"{section}: `{name}`", figures, seen))
        best = [f"within {q}: {_best(others.values(), f'{WITHIN} {q}')}" for q in QUERIES]
        claims.append(Claim(f"{section}: best of {', '.join(others)} at each number of queries", best, seen))
    for name, cells in page.rows("What each part contributes").items():
        needs = "scores; gradients of five surrogates" if "surrogates" in name else SCORES
        claims.append(Claim(name, [f"within {q}: {cells[f'within {q}']}" for q in QUERIES], NEVER, needs))
    dual = [page.match(rf"On {net}, of the proposals after the first flip (\d+%)") for net in ("vgg", "wrn")]
    claims.append(Claim("proposals after the first flip that add and restore at once: VGG, WRN", dual))
    data = "CIFAR-10 test images 0-499, 264 photos (one family of networks), beats of 9 records of DS2 of MIT-BIH"
    return _source("anytime", data, "H200; beats on CPU", claims)


def value_of(cell: str) -> float:
    """The figure of a table's cell, without its interval."""
    return math.inf if cell == "no flip" else float(cell.partition(" ")[0])


def _best(rows: Iterable[Mapping[str, str]], column: str) -> str:
    return min((cells[column] for cells in rows), key=value_of)


def _source(name: str, data: str, hardware: str, claims: Sequence[Claim], more: str = "") -> Source:
    return Source(f"benchmarks/results/{name}.md", f"python -m benchmarks.{name}{more}", data, hardware, claims)


def peers() -> Source:
    """Every row, and the best row of others at each number of queries."""
    page = Results.read("peers.md")
    claims = []
    for section in page.sections():
        rows = {name: cells for name, cells in page.rows(section).items() if "÷" not in name}
        for name, cells in rows.items():
            values = [f"{column}: {cell}" for column, cell in cells.items() if column != NEEDS]
            claims.append(Claim(f"{section}: `{name}`", values, NEVER, cells.get(NEEDS, "as its row says")))
        others = [cells for name, cells in rows.items() if not name.startswith(OURS)]
        columns = [column for column in next(iter(rows.values())) if re.fullmatch(r"L2.* \d+", column)]
        if others:
            best = [f"{column}: {_best(others, column)}" for column in columns]
            claims.append(Claim(f"{section}: best peer at each number of queries", best, NEVER, "as its row says"))
    data = "CIFAR-10 test images 0-499, the first photos of NIPS 2017, UCF-101 clips; no victim is among its surrogates"
    return _source("peers", data, "H200 and CPU", claims)


def explain() -> Source:
    page, claims = Results.read("explain.md"), []
    for section in ("Pets", "Beats, cnn", "Beats, resnet", "Beats, transformer"):
        rows = page.rows(section)
        samples = page.match(rf"## {section}\n\n(\d+) samples")
        scores = [(score, f"method {score}") for score in ("Dice", "deletion", "insertion", "queries")]
        values = [f"{name}: {s} {cells[c]}" for s, c in scores for name, cells in rows.items() if c in cells]
        gaps = {score: rows["rise"][f"belief (ours) minus {score}"] for score in ("deletion", "insertion")}
        less = [f"{score}, ours less RISE's: {gap}" for score, gap in gaps.items()]
        claims.append(Claim(section, [f"{samples} samples", *values, *less], EXPLAIN_SEEN, EXPLAIN_NEEDS))
    data = "Oxford-IIIT Pets with trimaps, EfficientNet-Lite0; MIT-BIH beats of DS2, three networks"
    return _source("explain", data, "H200", claims, " --device cuda")


def video() -> Source:
    """MAP of every attack on every victim, and the ratios of `auto` to `square`."""
    page, claims = Results.read("video.md"), []
    for name in ("C3D", "TSN", "TSM", "SLOWFAST"):
        seen = {} if name == "SLOWFAST" else {"auto": "settings were chosen with this model", "two agents": "yes"}
        for attack, cells in page.rows(name).items():
            values = [f"within {q}: {cells[f'attack MAP within {q}']}" for q in ("10", "50", "200")]
            claims.append(Claim(f"{name}: {attack}, MAP", values, seen.get(attack, NEVER)))
        clips = page.match(rf"## {name}\n\n\d+ attacked of (\d+) clips")
        over = page.match(rf"## {name}\n(?:.*\n)*?`auto` over `square`: (.*?)\. `two")
        claims.append(Claim(f"{name}: auto over square", [f"{clips} clips", over], seen.get("auto", NEVER)))
    data = "six UCF-101 actions, groups 4-7; settings of `auto` were chosen on groups 8-11 with C3D, TSN and TSM"
    return _source("video", data, "H200", claims, " --device cuda")


def transfer() -> Source:
    rows = Results.read("transfer.md").rows("Accuracy by severity")
    figures = [f"{name}: {cell}" for name, cells in rows.items() if (cell := cells["model flip"]).endswith("%")]
    claim = Claim(
        "accuracy on samples made against ResNet-20, in 8-bit PNG",
        ["500 images", *figures],
        "yes: the Q-map agent of rlab 0.1.0, deleted since, was trained on ResNet-20 and ConvMixer (mixer)",
    )
    return _source("transfer", "CIFAR-10 test images 0-499", "2 CPU cores", [claim])


def harden() -> Source:
    """Each method's distance to flip over that of the unchanged model, and its clean accuracy."""
    page, claims = Results.read("harden.md"), []
    for section in re.findall(r"^## (.*)$", page.text, re.M):
        values = [
            f"{name}: {cells['method times unchanged']} times, clean {cells['method clean']}, "
            f"right under Square {cells['method Square']}, right under PGD {cells['method PGD']}"
            for name, cells in page.rows(section).items()
            if "method times unchanged" in cells
        ]
        needs = "ours, PGD, FGSM, TRADES: gradients of the hardened model; AugMix, augmentation: nothing"
        seen = "settings were chosen with this model, on other images, patients and groups of clips"
        claims.append(Claim(f"{section}: distance to flip over that of the unchanged model", values, seen, needs))
    data = "without the images, patients and groups of clips on which settings were chosen; 9 of the 22 records of DS2"
    return _source("harden", data, "H200", claims, " --device cuda")


def sources() -> list[Source]:
    return [default_command(), anytime(), peers(), explain(), video(), transfer(), harden()]


def page(found: Sequence[Source]) -> str:
    about = (
        "This page traces every figure in [README](../README.md) and [Results](results.md) to its source. "
        "`python -m benchmarks.claims` looks the figures up in the results pages. Brackets are 95% bootstrap intervals where the "
        "results have them; if the interval of a ratio includes 1, we report no difference. *Seen* says whether the training of "
        "the measured prior or agent, or the choice of its settings, used the model. *Needs* lists what an attack requires. "
        "ECG beats come from 9 of the 22 records of DS2."
    )
    parts = ["# Claims", about]
    for source in found:
        rows = [(c.title, "; ".join(c.figures), c.seen, c.needs) for c in source.claims]
        link = f"[{source.page}](../{source.page})"
        facts = f"`{source.command}`; {source.data}; {source.hardware}."
        table = markdown(("figures", "value", "seen", "needs"), rows).replace("---:", "---")
        parts.append(f"## {link}\n\n{facts}\n\n{table}")
    return "\n\n".join(parts) + "\n"


def numbers(text: str) -> list[str]:
    """Figures in a text, without those in code, link targets, intervals, and names such as ResNet-20."""
    plain = re.sub(r"`[^`]*`|\]\([^)]*\)|\[[-+\d., inf]+\]|<!--.*?-->", " ", text, flags=re.S)
    return NUMBER.findall(plain)


def known(number: str, held: Sequence[str]) -> bool:
    """Whether a figure in `held` rounds to this one."""
    digits = number.strip("%").replace(",", "")
    half = 0.5 * 10.0 ** -len(digits.partition(".")[2]) + 1e-9
    same = [float(one.strip("%").replace(",", "")) for one in held if one.endswith("%") == number.endswith("%")]
    return any(abs(one - float(digits)) <= half for one in same)


def missing(text: str, found: Sequence[Source]) -> list[str]:
    """The table rows that match no single claim, and the sentences with a figure that no claim holds."""
    claims = [claim for source in found for claim in source.claims]
    every = [n for claim in claims for figure in claim.figures for n in numbers(figure)] + list(SETTINGS)
    lost = []
    body = re.sub(rf"```.*?```|{GENERATED}", "", text, flags=re.S)
    for heading, rows in tables_in(body):
        for cells in rows:
            if not any(holds(claim, heading[1:], cells[1:]) for claim in claims):
                lost.append(" | ".join(cells))
    for sentence in re.split(r"(?<=[.:;])\s", re.sub(r"^\|.*$", "", body, flags=re.M)):
        if unknown := [n for n in numbers(sentence) if not known(n, every)]:
            lost.append(f"{', '.join(unknown)} in: {' '.join(sentence.split())}")
    return lost


def holds(claim: Claim, heading: Sequence[str], cells: Sequence[str]) -> bool:
    """Whether a claim has each cell's figures, in the column of the same name if it has one."""
    labelled = [(figure.rpartition(": ")[0], figure) for figure in claim.figures]
    for column, cell in zip(heading, cells, strict=True):
        own = [figure for label, figure in labelled if column and f" {label}".endswith(f" {column}")]
        held = [n for figure in own or claim.figures for n in numbers(figure.rpartition(": ")[2] if own else figure)]
        if not all(known(n, held) for n in numbers(cell)):
            return False
        infinite = any("inf" in figure.partition(" [")[0] or INFINITE in figure for figure in own)
        if own and INFINITE in cell and not infinite:
            return False
    return True


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--check", action="store_true", help="only list the figures that the page does not hold")
    found = sources()
    if not parser.parse_args().check:
        PAGE.write_text(page(found), encoding="utf-8")
    lost = [line for path in SHOWN for line in missing(path.read_text(encoding="utf-8"), found)]
    print("\n".join(lost))
    finish({"claims": sum(len(source.claims) for source in found), "not_on_the_page": len(lost)})


if __name__ == "__main__":
    main()
