"""Files of a run that were deleted: the run forgets them, so that its command makes them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlab.storage.resume import Resume


def forget_deleted(resume: Resume) -> None:
    """Forget steps whose file is gone, and with them the files that join the steps.

    A finished run without parts is whole as long as its joined files exist.
    """
    written = [name for (name,) in resume.query_ledger("select name from files")]
    whole = bool(written) and all((resume.folder / name).exists() for name in written)
    if whole and not resume.keeps_parts:
        return
    steps = resume.query_ledger("select key, value is null, part from steps where finished = 1 and part is not null")
    lost = [key for key, in_file, digest in steps if not resume.file(key, in_file, digest).exists()]
    for key in lost:
        resume.drop(key)
    if lost or not whole:
        resume.unfinish()
