"""Converts event logs (user, item, time) to impressions with the history of the user."""

from ctrpipe.transforms.histories.settings import EventLog
from ctrpipe.transforms.histories.write_log import Prepared, prepare

__all__ = ["EventLog", "Prepared", "prepare"]
