"""Servers of these tests are on this machine: no proxy stands between."""

import os

os.environ["NO_PROXY"] = "127.0.0.1,localhost"
