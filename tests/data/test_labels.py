from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rlab.data.arrays import read_list
from rlab.data.fields import Labelled, SignalOptions
from rlab.data.labels import class_names, encode, encode_array, encode_values, labels_of, look_up, read_table
from rlab.errors import DataError, InputError, OptionError

ANY = SignalOptions(path="x.npy")


def write(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "text",
    [
        "file,label\na.png,cat\nb.png,dog\n",
        "label,file\ncat,a.png\ndog,b.png\n",
        "a.png,cat\nb.png,dog\n",
        "image;class\na.png;cat\nb.png;dog\n",
        "name\tbreed\na.png\tcat\nb.png\tdog\n",
        "id, size, target\na.png, 3, cat\n\nb.png, 4, dog\n",
    ],
)
def test_table_with_and_without_header(tmp_path, text):
    assert read_table(write(tmp_path / "labels.csv", text)) == {"a.png": "cat", "b.png": "dog"}


def test_the_column_of_labels_may_have_no_name(tmp_path):
    assert read_table(write(tmp_path / "labels.csv", "file,\na.png,cat\n")) == {"a.png": "cat"}


def test_table_by_column(tmp_path):
    path = write(tmp_path / "labels.csv", "image,breed,index\na,cat,281\n")
    assert read_table(path, "index") == {"a": "281"}


def test_samples_are_found_by_path_name_or_stem():
    table = {"x/a.png": "0", "b.png": "1", "c": "2", "y/d": "3"}
    assert look_up(table, ["x/a.png", "y/b.png", "c.jpg", "y/d.png"], "labels.csv") == ["0", "1", "2", "3"]


def test_names_are_sorted_unless_classes_give_the_order():
    y, names = encode(["dog", "cat", "dog"])
    assert (y.tolist(), names) == ([1, 0, 1], ("cat", "dog"))
    assert encode(["dog", "cat"], ["dog", "eel", "cat"])[0].tolist() == [0, 2]
    assert encode(["dog"], others=["ant", "cat"])[0].tolist() == [2]


def test_integers_are_indices():
    assert encode(["3", "1.0", "02"])[0].tolist() == [3, 1, 2]
    assert encode(["1"], ["cat", "dog"])[1] == ("cat", "dog")
    assert encode(["7", "3"], ["3", "7"])[0].tolist() == [1, 0]


def test_only_folders_of_plain_digits_are_numbers():
    def own(*folders):
        return labels_of(Labelled(path="."), [f"{name}/{i}.png" for i, name in enumerate(folders)])

    for folders in (("1_2", "3"), ("1e3", "2"), ("2.0", "10"), ("\uff11", "\uff12"), ("-1", "0")):
        assert own(*folders)[1] == tuple(sorted(folders))
    assert (own("10", "2")[0].tolist(), own("10", "2")[1]) == ([10, 2], ())
    assert encode(["1_2", "12"])[1] == ("12", "1_2")
    assert encode(["3.0", "1e1"])[0].tolist() == [3, 10]  # as numpy.savetxt writes numbers


def test_classes_from_a_file(tmp_path):
    path = write(tmp_path / "classes.txt", "tench, Tinca tinca\n\ngoldfish\n")
    assert class_names(str(path)) == ("tench, Tinca tinca", "goldfish")


def test_arrays_of_labels():
    assert encode_array(np.array([[3], [1]], np.uint8))[0].tolist() == [3, 1]
    assert encode_array(np.array([2.0, 0.0]))[0].tolist() == [2, 0]
    assert encode_array(np.array(["b", "a"]))[0].tolist() == [1, 0]
    assert encode_array(np.eye(3)[[2, 0]])[0].tolist() == [2, 0]
    assert encode_array(np.array([[1, 1, 0], [0, 0, 1]]))[0].tolist() == [[1, 1, 0], [0, 0, 1]]


@pytest.mark.parametrize(
    "text", ["cat\ndog\ncat\n", "label\ncat\ndog\ncat\n", "n,label\n0,cat\n1,dog\n2,cat\n", "kind\ncat\ndog\ncat"]
)
def test_one_label_per_line(tmp_path, text):
    y, names = read_list(write(tmp_path / "y.csv", text), 3, ANY)
    assert (y.tolist(), names) == ([0, 1, 0], ("cat", "dog"))


def test_labels_from_npy(tmp_path):
    np.save(tmp_path / "y.npy", np.array([4, 2]))
    assert read_list(tmp_path / "y.npy", 2, ANY)[0].tolist() == [4, 2]


def test_several_labels_stay_as_they_are_if_every_row_has_one():
    assert encode_array(np.eye(3)[[2, 0]], several=True)[0].tolist() == [[0, 0, 1], [1, 0, 0]]


COLUMNS = "image,breed,index\na,cat,281\n"


@pytest.mark.parametrize(
    ("text", "read", "error", "sentence"),
    [
        (COLUMNS, read_table, DataError, "several columns .*image, breed, index.*: pass label_column"),
        (
            f"image,{'much,' * 999}",
            read_table,
            DataError,
            r"several columns that could be the label \(.{,120}\): pass label_column",
        ),
        (COLUMNS, lambda p: read_table(p, "kind"), OptionError, "no column 'kind': its columns are image"),
        ("", read_table, DataError, "is empty"),
        ("a\nb\n", read_table, DataError, "got a single column: add the name of each file"),
        ("a,1\nb\n", read_table, DataError, "line 2 of 'labels.csv' has 1 cells"),
        ("a,1\na,2\n", read_table, DataError, "gives 'a' two labels, '1' and '2'"),
        ("\xff", read_table, InputError, "as UTF-8 text"),
        ("", lambda p: read_table(p.with_name("other.csv")), InputError, "there is no file"),
        ("", lambda p: class_names(str(p.with_name("none"))), InputError, "there is no file of class names"),
        ("1\n2\n", lambda p: read_list(p, 3, ANY), DataError, "'labels.csv' holds 2 labels for 3 samples"),
        ("file,label\n\na,0\nb,\nc,2\n", read_table, DataError, "got none in line 4 of 'labels.csv': fill it in or"),
        ("a,0\nb,\n", read_table, DataError, "got none in line 2 of 'labels.csv'"),
        ("n,label\n0,cat\n1,\n", lambda p: read_list(p, 2, ANY), DataError, "got none in line 3 of 'labels.csv'"),
        ("", lambda p: encode(["cat", ""]), DataError, "expected a label for every sample, got an empty one"),
        ("", lambda p: look_up({"c": "2"}, ["z.png", "c", "w"], p.name), DataError, "no row for 2 of 3 samples"),
        ("", lambda p: encode(["eel", "dog"], ["cat", "dog"]), DataError, "1 label names are not among the 2 classes"),
        ("", lambda p: encode(["2", "0"], ["cat", "dog"]), DataError, r"expected labels in 0\.\.1, got 0 to 2"),
        ("", lambda p: encode(["-1", "0"]), DataError, "expected labels of at least 0, got -1 to 0"),
        (
            "",
            lambda p: encode_array(np.ones((2, 2)), None, False),
            DataError,
            "2 of 2 samples with several labels or none",
        ),
        ("", lambda p: encode_array(np.array([0.5, 1.0])), DataError, "expected integers or names"),
        ("", lambda p: encode_values(np.array([1.5, 2]), None), DataError, r"like 1\.5: pass .* \(-D target=numbers\)"),
        ("", lambda p: encode_values(np.array([[1.5]]), None), DataError, "-D target=numbers"),
        ("", lambda p: encode_values(np.array([[1, 7]]), None), DataError, "-D target=numbers"),
        ("", lambda p: encode_values(np.ones((2, 8, 8), int), None), DataError, r"\(2, 8, 8\): .*-D target=map"),
        ("", lambda p: encode_values(np.ones((2, 3, 5)), None), DataError, "-D target=boxes"),
        ("", lambda p: encode_values(np.array([1, np.nan]), None), DataError, "expected integers or names .* like nan"),
        ("", lambda p: encode_array(np.array([[1, 7], [0, 0]])), DataError, r"expected labels of shape \(n,\)"),
    ],
)
def test_errors(tmp_path, text: str, read: Callable[[Path], object], error: type[InputError], sentence: str):
    (tmp_path / "labels.csv").write_text(text, encoding="latin-1")
    with pytest.raises(error, match=sentence):
        read(tmp_path / "labels.csv")
