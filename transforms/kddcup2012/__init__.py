"""Joins the seven files of KDD Cup 2012 track 2 into one log."""

from ctrpipe.transforms.kddcup2012.layout import is_kddcup2012
from ctrpipe.transforms.kddcup2012.prepare import Options, Prepared, prepare

__all__ = ["Options", "Prepared", "is_kddcup2012", "prepare"]
