"""`rlab corrupt`."""

from __future__ import annotations

from rlab.cli.build import declared
from rlab.cli.folder import RunFlags, tell_data
from rlab.corruptions.run import CorruptRunOptions, corrupt


@declared(queries=True)
def command(options: CorruptRunOptions, run: RunFlags) -> None:
    """Measure a model under the common corruptions: accuracy and calibration by kind and level.

    Images and clips get the fifteen kinds of ImageNet-C (up to 64 pixels, with the parameters of CIFAR-10-C); signals get the
    noise and faults of recordings. The data cifar10c:FOLDER are the published files of CIFAR-10-C, which are used as they are. If
    --baseline names an earlier run on the same data, the table also has the mean corruption error (mCE). To resume a stopped run,
    repeat the command with the same --out.
    """
    given = {name: getattr(options, name) for name in options.model_fields_set - {"model", "data"}}
    with run.opened("corrupt") as folder:
        report = corrupt(options.model, options.data, out=folder, announce=tell_data, **given)
        figures = {name: getattr(report, name) for name in ("accuracy", "ece", "mce", "relative_mce", "rows")}
        run.finish(report, folder, clean=report.clean.accuracy.value, **figures)
