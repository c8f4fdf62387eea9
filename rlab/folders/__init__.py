"""What you can do with a finished run folder: report, compare and track it."""
