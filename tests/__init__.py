"""The tests. Imported before any of them, also in processes that load a model from here."""

import os

if os.environ.get("RLAB_TEST_MKLDNN") == "0":  # see test_portable
    import torch  # only now: conftest says with how many threads before torch is imported

    torch.backends.mkldnn.set_flags(False)
