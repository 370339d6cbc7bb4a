"""Event logs (a user, an item, a time) to impressions, each with what its user did before it."""

from transforms.histories.settings import EventLog
from transforms.histories.write_log import Prepared, prepare

__all__ = ["EventLog", "Prepared", "prepare"]
