"""Runs as files: how options are read and checked, what is kept, and how a stopped run goes on."""
