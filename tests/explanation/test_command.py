"""`rlab explain`, its files and pictures, ground truth from a folder, and an attack's own explanation."""

import numpy as np
import pytest
import torch
from PIL import Image

import rlab
from rlab.data.batch import Batch
from rlab.errors import DataError
from rlab.explanation.explanation import Explanation
from rlab.explanation.options import COMPARED, COMPARED_LAYERS, ExplainOptions, read_masks
from rlab.runs.options import RunOptions, make_attack
from tests.command import rlab_command
from tests.helpers import read_csv


@pytest.mark.parametrize("kind", ["ecg", "digits", "clips"])
def test_maps_arrays_and_pictures(kind, tmp_path):
    words = ["--limit", 2, "--method", "rise(masks=12)", "--pictures", 1]
    result = rlab_command("explain", f"demo:{kind}", f"demo:{kind}", *words, "--out", tmp_path / "out")
    assert result.code == 0, result.err
    stored, batch = Explanation.load(tmp_path / "out"), rlab.load(f"demo:{kind}", limit=2)
    assert stored.maps.shape == stored.mask.shape == (2, *batch.size)
    assert stored.ids == batch.ids
    (picture,) = (tmp_path / "out" / "pictures").iterdir()
    assert np.asarray(Image.open(picture).convert("RGB")).std() > 5  # not blank
    (row, _) = read_csv(tmp_path / "out" / "results.csv")
    assert 0 < float(row["probability"]) <= 1
    page = (tmp_path / "out" / "report.html").read_text()
    assert row["explained_name"] in page
    assert page.count('<figure class="viewer') == 1
    assert page.count('timeline" data-frames') == (kind == "clips")
    kept = stored.inputs
    assert kept is not None
    assert torch.equal(kept.x, batch.x[:1])
    assert (kept.ids, kept.classes, kept.rate) == (batch.ids[:1], batch.classes, batch.rate)


def test_one_query_is_not_told_as_queries(tmp_path):
    words = ["--limit", 1, "--method", "middle", "--pictures", 0]
    result = rlab_command("explain", "demo:digits", "demo:digits", *words, "--out", tmp_path / "out")
    assert "1 query per sample" in rlab.explain("demo:digits", "demo:digits", limit=1, method="middle").__repr__()
    assert "queries per sample" in result.out


def test_belief_stores_its_deviation_and_an_interval_for_every_region(tmp_path):
    result = rlab_command(
        "explain", "demo:ecg", "demo:ecg", "--limit", 2, "--method", "belief(queries=150)", "--pictures", 1,
        "--out", tmp_path / "out",
    )  # fmt: skip
    assert result.code == 0, result.err
    stored = Explanation.load(tmp_path / "out")
    assert stored.deviation is not None
    assert stored.deviation.shape == stored.maps.shape
    rows = read_csv(tmp_path / "out" / "regions.csv")
    assert {row["id"] for row in rows} == set(rlab.load("demo:ecg", limit=2).ids)
    for row in rows:
        before, after, low, high = (float(row[name]) for name in ("before", "after", "low", "high"))
        assert low <= after <= high
        assert row["settled"] == "False" or not low <= before <= high
        assert float(row["mean_low"]) <= float(row["mean_effect"]) <= float(row["mean_high"])
    assert "the first of 2 samples" in result.out
    assert "13 regions change it when they are removed alone" in " ".join(result.out.split())
    page = rlab_command("report", tmp_path / "out")
    assert page.code == 0, page.err


def test_a_comparison_makes_a_table_and_a_self_contained_page(tmp_path):
    result = rlab_command(
        "explain", "demo:ecg", "demo:ecg", "--limit", 2, "--compare", "--method", "occlusion(along=8),gradcam,middle",
        "--steps", 4, "--pictures", 1, "--out", tmp_path / "out",
    )  # fmt: skip
    assert result.code == 0, result.err
    for word in ("occlusion", "gradcam", "middle", "Dice", "deletion", "sanity"):
        assert word in result.out
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count('<figure class="viewer') == 3  # of three methods
    assert "http" not in page.replace("http-equiv", "")
    assert page.count("<script") == 1
    rows = read_csv(tmp_path / "out" / "results.csv")
    assert len(rows) == 3 * 2
    again = rlab_command("report", tmp_path / "out")
    assert again.code == 0, again.err
    parts = [
        text[text.index("<main>") : text.index("</main>")]
        for text in (page, (tmp_path / "out" / "report.html").read_text())
    ]
    assert parts[0] == parts[1]  # from the folder alone
    assert {"method", "id", "explained", "explained_name", "queries", "dice", "iou"} <= set(rows[0])


def test_a_comparison_without_ground_truth(tmp_path):
    result = rlab_command(
        "explain", "demo:digits", "demo:digits", "--limit", 1, "--compare", "--method", "middle", "--no-checks",
        "--out", tmp_path / "out",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "no ground truth" in result.out
    assert "Dice" not in result.out.split("no ground truth")[0]


@pytest.mark.parametrize("compare", [False, True])
def test_python_stores_what_the_command_stores(compare, tmp_path):
    words = ["--limit", 1, "--method", "middle", "--no-checks", *(["--compare"] if compare else [])]
    assert rlab_command("explain", "demo:digits", "demo:digits", *words, "--out", tmp_path / "said").code == 0
    given = {"limit": 1, "method": "middle", "checks": False, "compare": compare}
    rlab.explain("demo:digits", "demo:digits", **given, out=tmp_path / "made")
    names = [
        {path.relative_to(tmp_path / run).as_posix() for path in (tmp_path / run).rglob("*")}
        for run in ("said", "made")
    ]
    assert names[0] == names[1]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--method", "gradcan"], "Did you mean 'gradcam'"),
        (["--rule", "half"], "expected a rule like"),
        (["--class", "99"], "class 99 is not one of the model's"),
        (["--masks", "nowhere"], "there is no folder 'nowhere'"),
        (["--mask-values", "1"], "add --masks"),
        (["--method", "hsic"], "unknown method 'hsic'"),
        (["--compare", "--method", "mask"], "cannot be scored"),
    ],
)
def test_bad_input_is_one_sentence(arguments, why, tmp_path):
    result = rlab_command("explain", "demo:digits", "demo:digits", "--limit", 1, "--out", tmp_path / "out", *arguments)
    assert result.code == 2
    assert why in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_masks_from_a_folder(tmp_path):
    batch = Batch(x=torch.rand(2, 3, 8, 8), y=torch.zeros(2, dtype=torch.int64), ids=("a.jpg", "b.jpg"))
    marks = np.full((16, 16), 2, np.uint8)
    marks[:8, :8], marks[8:, 8:] = 1, 3
    for name in "ab":
        Image.fromarray(marks).save(tmp_path / f"{name}.png")
    masks = read_masks(tmp_path, batch, (1, 3))
    want = torch.zeros(8, 8, dtype=torch.bool)
    want[:4, :4], want[4:, 4:] = True, True
    assert torch.equal(masks, want.expand(2, 8, 8))
    assert read_masks(tmp_path, batch).all()  # any value but 0
    (tmp_path / "b.png").write_bytes(b"no image")
    with pytest.raises(DataError):
        read_masks(tmp_path, batch)
    (tmp_path / "b.png").unlink()
    with pytest.raises(DataError, match=r"1 of 2 samples have no mask.*'b'"):
        read_masks(tmp_path, batch)
    with pytest.raises(DataError):
        read_masks(tmp_path, rlab.load("demo:ecg", limit=1))


def test_a_result_explains_itself():
    victim, batch = rlab.demo_victim("digits"), rlab.load("demo:digits", limit=4)
    result = rlab.attack(victim, batch, palette=["dead_pixel@1.0"], patch=2, budget=200, policy="random")
    own = rlab.explain_result(result)
    assert torch.equal(own.mask, result.masks & result.succeeded.view(-1, 1, 1))
    assert own.mask.any()
    assert own.queries.tolist() == result.queries.sum(1).tolist()
    other = rlab.explain_result(result, victim, method="occlusion(along=4)")
    assert other.maps.shape == own.maps.shape


FILE = {
    "model": "demo:digits", "data": {"path": "demo:digits", "limit": 2}, "palette": ["dead_pixel"], "patch": 2,
    "budget": 99, "policy": "square", "accept": "always", "l2_penalty": 0.3, "patience": 2, "cleanup": False, "seed": 4,
}  # fmt: skip


def test_a_file_of_an_attack_builds_the_same_attack():
    batch = rlab.load("demo:digits", limit=2)
    options = ExplainOptions.model_validate(FILE)
    assert options.build(batch) == RunOptions.model_validate(FILE).build(batch)
    (mask,) = options.model_copy(update={"method": ("mask",)}).methods()
    assert mask.options["attack"] == options.attack_options()


def test_options_of_an_explanation():
    options = ExplainOptions.model_validate(
        FILE | {"class": 3, "mask_values": "1,3", "method": "occlusion,rise(masks=10, cells=3)"}
    )
    assert (options.label, options.mask_values) == (3, (1, 3))
    assert [method.name for method in options.methods()] == ["occlusion", "rise"]
    labels = options.labels(rlab.load("demo:digits", limit=2))
    assert labels is not None
    assert labels.tolist() == [3, 3]
    assert ExplainOptions.model_validate(options.plain()) == options


@pytest.mark.parametrize(
    ("given", "names"),
    [({}, ("belief",)), ({"compare": True}, COMPARED), ({"compare": True, "layers": True}, COMPARED + COMPARED_LAYERS)],
)
def test_default_methods(given, names):
    methods = ExplainOptions.model_validate(FILE).methods(**given)
    assert [method.name for method in methods] == [name.partition("(")[0] for name in names]
    assert not any(method.flips for method in methods)


def test_a_class_has_a_number_or_a_name():
    for label in (2, "ventricular premature"):
        found = rlab.explain("demo:ecg", "demo:ecg", limit=1, method="middle", label=label, progress=False)
        assert found.labels.tolist() == [2]
    result = rlab_command("explain", "demo:ecg", "demo:ecg", "--limit", 1, "--method", "middle", "--class", "MI")
    assert result.code == 2
    assert "there is no class 'MI' to explain: the data have normal" in " ".join(result.err.split())
    assert make_attack(rlab.load("demo:ecg", limit=2), goal="targeted:ventricular premature").goal == rlab.Targeted(2)
