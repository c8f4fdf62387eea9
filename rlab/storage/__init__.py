"""Files, folders and locks that survive a crash, and checks on files that users provide."""
