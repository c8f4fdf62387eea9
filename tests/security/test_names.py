"""Names from users become safe file names, and paths named inside a folder stay in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlab.errors import FolderError
from rlab.storage.names import file_name, inside, refuse_strange


@given(st.text(st.characters(), max_size=400))
def test_any_text_becomes_a_safe_file_name(text: str) -> None:
    name = file_name(text)
    assert 0 < len(name) <= 80
    assert name.isascii()
    assert not set(name) & set("/\\:\0 \n'\"<>|*?$`=@")
    assert not name.startswith((".", "-", "+"))
    assert ".." not in name
    assert not name.endswith(".")
    assert file_name(name) == name
    assert file_name(text, [name.upper()]) not in (name, name.upper())


@pytest.mark.parametrize(
    ("text", "name"),
    [("../a b", "a-b"), ("/etc/passwd", "etc-passwd"), ("..", "unnamed"), ("", "unnamed"), ("con", "_con"),
     ("NUL.txt", "_NUL.txt"), ("demo:digits", "demo-digits"), ("gradcam++", "gradcam++"), ("pgd_l2@0.5", "pgd_l2-0.5")],
)  # fmt: skip
def test_names_stay_readable(text: str, name: str) -> None:
    assert file_name(text) == name


def test_long_names_stay_different() -> None:
    assert file_name("x" * 500 + "a") != file_name("x" * 500 + "b")


@pytest.mark.parametrize("name", ["", "..", "../a", "/etc/passwd", "a/../../b", "a\0b", None, 3, "link", "link/a"])
def test_a_path_that_leaves_its_folder_is_refused(name: object, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    with pytest.raises(FolderError):
        inside(folder, name)
    with pytest.raises(FolderError):
        refuse_strange(folder)


def test_a_folder_may_itself_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real" / "a").mkdir(parents=True)
    (tmp_path / "run").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "loop").symlink_to("loop")
    assert inside(tmp_path / "run", "a/b.png") == tmp_path / "run" / "a" / "b.png"
    refuse_strange(tmp_path / "run")
