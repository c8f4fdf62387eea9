"""A local server for run folders: pages of runs, their samples by filter, and the progress of running ones.

Nothing here imports torch before a page needs it, so that the server starts at once.
"""
