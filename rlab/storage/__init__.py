"""Files, folders and locks that survive a crash, and the checks on whatever is read from outside."""
