"""What you can do with a finished run folder: report, compare, track and repair it."""
