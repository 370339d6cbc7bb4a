"""KDD Cup 2012 track 2: seven files become one log."""

from transforms.kddcup2012.layout import is_kddcup2012
from transforms.kddcup2012.prepare import Options, Prepared, prepare

__all__ = ["Options", "Prepared", "is_kddcup2012", "prepare"]
