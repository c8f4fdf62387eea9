"""`rlab filters`."""

from __future__ import annotations

from typing import Annotated

import typer

from rlab.cli.declared import out
from rlab.filters.base import GRADIENTS
from rlab.present.table import terminal
from rlab.results.tables import filters_table


def command(
    rank: Annotated[
        int | None, typer.Option(min=1, max=3, help="Only filters for signals (1), images (2) or video (3)")
    ] = None,
) -> None:
    """List the built-in filters, their severities and what they imitate."""
    out.print(terminal(filters_table(rank)))
    out.print(
        "Write name, name@severity, name@0.1,0.3 (two entries), name@0.1*3 (three draws), or your own module:function. "
        "Filters that add noise also take name@20dB (signal-to-noise ratio) and name@0.1mV (the data's unit)."
    )
    out.print(
        "Palettes with a name: clinical (the default for ECG), recorder (whole records), audio (the default for "
        "sound), corruptions (the common corruptions at level 3), paper (the papers' four), nstdb:FOLDER (recorded noise). "
        "limb_lead_reversal, _ra_ll and _la_ll swap cables of records with named limb leads."
    )
    for name, about in GRADIENTS.items():
        out.print(f"With --surrogate MODEL you can also use {name}@0.01: {about}.", highlight=False)
