"""Describe a sample or a whole run in one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torch import Tensor

from rlab.core.setting import Status
from rlab.core.trace import DISTANCE_NAMES
from rlab.present.layers import runs
from rlab.present.table import number
from rlab.results.change import flip_shares, that_count, weigh
from rlab.results.data import ResultData, SampleData
from rlab.results.predicted import box_flip_words, class_words
from rlab.stats import median_of

# Words for filters whose names do not read well; the others only need spaces instead of underscores.
_WORDS = {
    "powerline_hum50": "50 Hz mains hum",
    "powerline_hum60": "60 Hz mains hum",
    "illuminate+": "brightening",
    "illuminate-": "darkening",
    "contrast+": "higher contrast",
    "contrast-": "lower contrast",
    "amplitude_scaling+": "higher gain",
    "amplitude_scaling-": "lower gain",
    "dead_pixel": "dead points",
    "salt_and_pepper": "salt-and-pepper noise",
    "jpeg": "JPEG compression",
    "gaussian_noise": "noise",
    "gaussian_blur": "blur",
    "pixelate": "coarse pixels",
    "frozen_frame": "frozen frames",
}
# How a sample ended, by its status and the special case of its goal or its prediction, "" for all others.
_ENDS = {
    (Status.SUCCEEDED, ""): "{label} read as {after} after {done}",
    (Status.SUCCEEDED, "targeted"): "{label} read as {after}, the target, after {done}",
    (Status.SUCCEEDED, "below"): "{label}: its probability fell from {was:.2g} to {now:.2g} after {done}",
    (Status.SUCCEEDED, "boxes"): "{label}: {boxes} after {done}",
    (Status.SUCCEEDED, "other"): "{label}: {before} became {after} after {done}",
    (Status.SPENT, ""): "{label} held: still read as {after} within {spent}",
    (Status.SPENT, "targeted"): "{label} held: not read as {aim} within {spent}",
    (Status.SPENT, "other"): "{label} held: still {after} within {spent}",
    (Status.SKIPPED, ""): "{label} was not attacked: read as {before} untouched, which is wrong already",
    (Status.SKIPPED, "targeted"): "{label} was not attacked: it is the target itself",
    (Status.SKIPPED, "reached"): "{label} was not attacked: the goal {goal} was reached untouched",
    (Status.SKIPPED, "other"): "{label} was not attacked: {before} untouched, so the clean prediction already fails",
    (Status.FAILED, ""): "{label}: the model answered NaN to a distorted input, after {spent}; no flip counts",
    (Status.LOST, ""): "{label}: the model did not answer the last query it had, after {spent}; no flip counts",
    (
        Status.UNVERIFIED,
        "",
    ): "{label}: flipped once, but not again from the stored input, after {spent}; no flip counts",
}
_MOST = 3  # distortions, leads or classes listed by name
_LEAD = 0.1  # of the squared change, by which the strongest filter must lead the next to be named


def filter_words(entry: str) -> str:
    """Turn 'powerline_hum50@0.1mV#2' into '50 Hz mains hum'."""
    name = entry.rpartition("@")[0] or entry
    family = "channel shift" if name.startswith("channel_shift") else name.rpartition(":")[2].replace("_", " ")
    return _WORDS.get(name, family)


def sample_sentence(sample: SampleData, distance: bool = True) -> str:
    """Say how the sample was read after which distortion, or why there is no flip."""
    setting, case, known = sample.setting, _case(sample), dict[str, str | float]()
    if sample.succeeded:
        known["done"] = _done(sample, distance)
        if case == "boxes":
            known["boxes"] = box_flip_words(setting, sample.truth, sample.before, sample.after)
        if case == "below" and isinstance(k := sample.label, int):
            known |= {"was": float(sample.before[k]), "now": float(sample.after[k])}
    target = setting.goal.partition(":")[2]
    aim = f"{class_words(setting, int(target))}, the target," if target.isdecimal() else "its target class"
    names = {"label": sample.label, "before": sample.predicted_before, "after": sample.predicted_after}
    words = {name: class_words(setting, label) for name, label in names.items()}
    pattern = _ENDS.get((sample.status, case), _ENDS[sample.status, ""])
    return pattern.format(**words, **known, aim=aim, goal=setting.goal, spent=_many(sample.queries, "query", "queries"))


def _case(sample: SampleData) -> str:
    """The special case in `_ENDS`."""
    kind = sample.setting.goal.partition(":")[0]
    if sample.setting.target != "classes":
        return "boxes" if sample.setting.target == "boxes" and sample.succeeded else "other"
    if sample.status is Status.SKIPPED:
        reached = "targeted" if kind == "targeted" else "reached"
        return reached if sample.predicted_before == sample.label else ""
    return "" if kind == "below" and not isinstance(sample.label, int) else kind


def run_sentence(result: ResultData) -> str:
    """Say how many samples flipped, at which distance and cost, the most common confusion and the strongest filter."""
    setting, won, attacked = result.setting, result.succeeded, int(result.attacked.sum())
    flipped, skipped = int(won.sum()), len(result) - attacked
    left = f"; {skipped} more {'was' if skipped == 1 else 'were'} not attacked" if skipped else ""
    if not attacked:
        return f"None of {_many(len(result), 'sample')} was attacked: the model was wrong on them already"
    broken = sum(s not in (Status.SUCCEEDED, Status.SPENT, Status.SKIPPED) for s in result.status)
    failed = f"; on {broken} the model failed to answer or to repeat its answer" if broken else ""
    if not flipped:
        return f"None of {_many(attacked, 'attacked sample')} flipped within {setting.budget} queries{failed}{left}"
    far, patches = (median_of(v, won) for v in (result.distances()[1], result.final["l0_patches"]))
    near = f"at a median {DISTANCE_NAMES[setting.distance]} of {setting.format_distance(far)}"
    size = f"{patches:g} of {_many(len(setting.grid), 'patch', 'patches')}"
    cost = f"the search stopped at {median_of(result.effort, won):g} of {setting.budget:,} queries"
    facts = f"{flipped} of {_many(attacked, 'attacked sample')} flipped, {near} and {size}; {cost}"
    return "; ".join(filter(None, [facts, _confusion(result), _culprit(result)])) + failed + left


def _culprit(result: ResultData) -> str:
    """The filter that made most of the change of the flips; empty if another comes close."""
    shares = dict.fromkeys(map(filter_words, result.setting.palette), 0.0)
    for entry, share in zip(result.setting.palette, flip_shares(result)[1].mean(0).tolist(), strict=True):
        shares[filter_words(entry)] += share
    (first, name), (second, _) = sorted([(0.0, ""), *((share, name) for name, share in shares.items())])[:-3:-1]
    return f"{name} made {first:.0%} of the squared change" if first - second >= _LEAD else ""


def _confusion(result: ResultData) -> str:
    """The most common confusion of classes; empty if none leads or occurs twice, and for boxes, maps and numbers."""
    if result.setting.target != "classes":
        return ""
    labels, after = result.labels[result.succeeded], result.after[result.succeeded]
    read = (after > 0.5).int() if labels.dim() > 1 else after.argmax(1)
    (pair, count), *others = Counter(zip(_classes(labels), _classes(read), strict=True)).most_common(2)
    words, leads = [class_words(result.setting, k) for k in pair], all(fewer < count for _, fewer in others)
    return f"most often {words[0]} read as {words[1]} ({count} of {len(labels)})" if count > 1 and leads else ""


def _classes(labels: Tensor) -> list[int | tuple[int, ...]]:
    """Return the class of each sample from (n,), or its classes from (n, k) of zeros and ones."""
    if labels.dim() == 1:
        return list(labels.tolist())
    return [tuple(k for k, on in enumerate(row) if on) for row in labels.tolist()]


def _many(count: int, one: str, several: str = "") -> str:
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def _listed(words: Sequence[str], most: int = _MOST) -> str:
    """'a, b and c', or 'a, b, c and 9 more'."""
    shown = [*words] if len(words) <= most + 1 else [*words[:most], f"{len(words) - most} more"]
    return " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))


def _done(sample: SampleData, distance: bool) -> str:
    """Describe the distortion: which, how much and where."""
    setting = sample.setting
    names = _names(sample)
    if not names:
        return "nothing was distorted"
    if len(setting.size) == 1:
        return f"{_amount(sample)} {names} {_when(sample)}{_leads(sample)}"
    far = f"; {DISTANCE_NAMES[setting.distance]} {setting.format_distance(sample.distance)}" if distance else ""
    patches = f"{int((sample.entries != 0).sum())} of {len(setting.grid)} patches{_bands(sample)}"
    return f"{names} in {patches}{_frames(sample) if setting.grid.rank > 2 else ''}{far}"


def _names(sample: SampleData) -> str:
    """The distortions, those that made most of the change first; those that hardly count are '12 more'."""
    used, weight = dict[str, float](), weigh(sample)
    for patch in sample.entries.nonzero().flatten().tolist():
        name = filter_words(sample.setting.palette[int(sample.entries[patch]) - 1])
        used[name] = used.get(name, 0.0) + float(weight[patch])
    return _listed(sorted(used, key=lambda name: -used[name]), min(_MOST, len(that_count([*used.values()]))))


def _amount(sample: SampleData) -> str:
    """Describe the largest change: in the data's unit, as a share of its range, or as a number."""
    setting, largest = sample.setting, float((sample.perturbed - sample.x).abs().max())
    if setting.unit:
        return f"up to {number(largest, 2 if largest < 99.5 else 3)} {setting.unit} of"
    if setting.bounded:
        return f"a change of {largest / (setting.bounds[1] - setting.bounds[0]):.2g} of the range by"
    return f"a change of {largest:.2g} by"


def _stretches(sample: SampleData) -> list[tuple[int, int, int]]:
    """Return (start, stop, group of channels) of every distorted stretch, the one with the largest change first."""
    grid, change, found = sample.setting.grid, (sample.perturbed - sample.x).abs(), []
    for group, on in enumerate(grid.expand(sample.entries != 0).view(-1, *grid.size)):
        size = change[list(grid.groups[group])].amax(0) if grid.groups else change.amax(0)
        found += [(float(size[start:stop].max()), (start, stop, group)) for start, stop in runs(on.numpy())]
    return [stretch for _, stretch in sorted(found, key=lambda each: -each[0])]


def _when(sample: SampleData) -> str:
    """Describe the time relative to the nearest R peak, else in seconds or points."""
    setting, stretches = sample.setting, _stretches(sample)
    (start, stop, _), rate = stretches[0], sample.setting.rate
    several = f"in {len(stretches)} places, the strongest " if len(stretches) > 1 else ""
    peaks = [at for at in sample.r_peaks if 0 <= at < setting.size[0]]
    if not peaks:
        low, high = (f"{round(at / (rate or 1.0), 2):g}" for at in (start, stop))
        return f"{several}from {low} to {high} {'s' if rate else f'of {setting.size[0]} points'}"
    peak = min(peaks, key=lambda at: max(start - at, at - (stop - 1), 0))
    when = f"{peak / rate:.2f} s" if rate else f"point {peak}"
    name = "the R peak" if len(peaks) == 1 else f"the R peak at {when}"
    if start <= peak < stop:
        return f"{several}over {name}"
    ends = sorted((abs(start - peak), abs(stop - 1 - peak)))
    span = " to ".join(dict.fromkeys(f"{1000 * n / rate:.0f}" if rate else f"{n}" for n in ends))
    return f"{several}{span} {'ms' if rate else 'points'} {'before' if stop <= peak else 'after'} {name}"


def _leads(sample: SampleData) -> str:
    """Name the changed leads if there are several; of groups, the one with the largest change."""
    if groups := sample.setting.groups:
        return f" in {groups[_stretches(sample)[0][2]]}"
    changed = (sample.perturbed != sample.x).flatten(1).any(1)
    count, names = len(changed), sample.setting.leads
    which = changed.nonzero().flatten().tolist()
    if count == 1:
        return ""
    if len(which) == count:
        return " in both leads" if count == 2 else f" in all {count} leads"
    if len(which) > _MOST:
        return f" in {len(which)} of {count} leads"
    return f" in lead{'s' * (len(which) > 1)} {_listed([names[k] if names else str(k + 1) for k in which])}"


def _bands(sample: SampleData) -> str:
    """Name the distorted groups of channels of a picture, where there are groups."""
    groups, grid = sample.setting.groups, sample.setting.grid
    held = sorted({grid.group(patch) for patch in sample.entries.nonzero().flatten().tolist()})
    return f" of channel{'s' if len(held) > 1 else ''} {_listed([groups[group] for group in held])}" if groups else ""


def _frames(sample: SampleData) -> str:
    hit, rate = sample.mask.flatten(1).any(1).nonzero().flatten().tolist(), sample.setting.rate
    first, last, frames = hit[0], hit[-1], sample.setting.size[0]
    seconds = f" ({first / rate:.2f} to {(last + 1) / rate:.2f} s)" if rate else ""
    if first == last:
        return f", frame {first + 1} of {frames}{seconds}"
    gaps = f"{len(hit)} frames from " if len(hit) <= last - first else "frames "
    return f", {gaps}{first + 1} to {last + 1} of {frames}{seconds}"
