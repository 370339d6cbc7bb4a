"""Event logs (a user, an item, a time) to impressions, each with what its user did before it."""

from ctrpipe.transforms.histories.settings import EventLog
from ctrpipe.transforms.histories.write_log import Prepared, prepare

__all__ = ["EventLog", "Prepared", "prepare"]
