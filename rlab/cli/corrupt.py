"""`rlab corrupt`."""

from __future__ import annotations

from rlab.cli.declared import Out, Wait, declared, out, run_folder, tell_data
from rlab.cli.ending import Paged, tell_page, write_report
from rlab.cli.spoken import summary
from rlab.corruptions.run import CorruptRunOptions, corrupt
from rlab.present.table import plain, terminal, text


@declared(CorruptRunOptions)
def command(options: CorruptRunOptions, folder: Out = None, page: Paged = True, wait: Wait = False) -> None:
    """Measure a model under the common corruptions: accuracy and calibration by kind and level.

    Images and clips get the fifteen kinds of ImageNet-C (up to 64 pixels, with the parameters of CIFAR-10-C); signals get the
    noise and faults of recordings. The data cifar10c:FOLDER are the published files of CIFAR-10-C, which are used as they are. If
    --baseline names an earlier run on the same data, the table also has the mean corruption error (mCE). To resume a stopped run,
    repeat the command with the same --out.
    """
    given = {name: getattr(options, name) for name in options.model_fields_set - {"model", "data"}}
    with run_folder(folder, "corrupt", wait) as folder:
        report = corrupt(options.model, options.data, out=folder, announce=tell_data, **given)
        written = write_report(folder, page)
    out.print(terminal(report.table()))
    for number in report.numbers():
        out.print(plain(f"{number.name}: {text(number.value)}"))
    out.print(f"[dim]{report.rules}[/dim]")
    out.print(f"Results: [bold]{plain(folder)}[/bold]")
    figures = {"clean": report.clean.accuracy.value, "accuracy": report.accuracy, "ece": report.ece, "mce": report.mce}
    figures |= {"relative_mce": report.relative_mce, "rows": report.rows}
    worst = None if report.worst is None else report.worst.median.value
    summary(command="corrupt", out=folder, page=written, **figures, worst=worst)
    tell_page(written)
