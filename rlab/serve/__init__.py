"""A local server over run folders: what `rlab report` shows, the samples of a run by filters, runs that are under way.

Nothing here imports torch before a page needs it, so that the server starts at once.
"""
