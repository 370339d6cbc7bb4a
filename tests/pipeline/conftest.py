"""Fixtures of the tests of the pipeline."""

import pytest

from ctrpipe.pipeline.draft import page
from ctrpipe.pipeline.draft.sets import registry


@pytest.fixture
def trees(monkeypatch):
    """The same drafts where the system lacks OpenMP's library, which LightGBM needs."""
    for module in (page, registry):
        monkeypatch.setattr(module, "openmp_missing", lambda: "")
