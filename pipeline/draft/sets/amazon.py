"""Amazon's reviews of 2014, 2018 and 2023 (JSON lines), or their ratings alone (CSV): a review is an event."""

from typing import Any

from ctrpipe.common.errors import InputError
from ctrpipe.common.printable import excerpt
from ctrpipe.pipeline.draft.sets.folder import KnownSet, SetFolder, parts_by_time
from ctrpipe.transforms.log.sample import read_sample

_FORMER = ("reviewerID", "asin", "unixReviewTime")
_NOW = ("user_id", "parent_asin", "timestamp")
_OF_ITEM = ("main_category", "store", "main_cat", "brand")


def _draft(folder: SetFolder) -> dict[str, Any]:
    reviews = folder.one("reviews_*.json", "*.jsonl", "*.json", "ratings_*.csv", "*.csv", without="meta")
    sample = read_sample(reviews)
    for user, item, time in (_FORMER, _NOW):
        if {user, item, time} <= set(sample.columns):
            return _configuration(reviews, user, item, time, _tables(folder, item))
    if "columns" in sample.data and len(sample.columns) == 4:  # ratings alone, without a header
        return _of_ratings(reviews, list(sample.columns.values()))
    names = ", ".join(sample.columns)
    wanted = f"{', '.join(_FORMER)} or {', '.join(_NOW)}"
    raise InputError(f"{reviews}: no reviews of amazon, which have {wanted}; it has {excerpt(names)}")


def _tables(folder: SetFolder, item: str) -> list[dict[str, Any]]:
    """Returns the table of the items, if the folder has one in JSON. The 2014 table is Python's notation, not JSON."""
    files = [*folder.all("meta_*.jsonl"), *folder.all("meta_*.json")]
    for file in files:
        try:
            known = read_sample(file).columns
        except InputError:
            continue
        kept = [name for name in _OF_ITEM if name in known]
        if item in known and kept:
            return [{"paths": [file], "on": item, "keep": kept, "duplicates": "first"}]
    if files:
        folder.lacking.append(
            f"{files[0]} is no JSON lines with {item} and one of {', '.join(_OF_ITEM)}: the configuration goes without "
            "the columns of this table"
        )
    return []


def _of_ratings(file: str, values: list[list[str]]) -> dict[str, Any]:
    """Returns the configuration of ratings, whose users are in the first column or, in those of 2018, in the second.

    Ids of items have ten characters.
    """
    items_first = sum(len(value) == 10 for value in values[0]) > sum(len(value) == 10 for value in values[1])
    columns = ["item", "user", "rating", "time"] if items_first else ["user", "item", "rating", "time"]
    configuration = _configuration(file, "user", "item", "time", [])
    configuration["events"]["columns"] = columns
    return configuration


def _configuration(reviews: str, user: str, item: str, time: str, tables: list[dict[str, Any]]) -> dict[str, Any]:
    kept = tables[0]["keep"] if tables else []
    events: dict[str, Any] = {"user": user, "item": item, "time": time, "negatives": 1, "max_length": 50}
    if kept:
        events |= {"item_columns": kept, "sequences": kept}
    values = parts_by_time(events)
    values["data"] |= {"paths": [reviews], "weight": "weight"}
    if tables:
        values["data"]["join"] = {"tables": tables}
    histories = [f"{name}_history" for name in (item, *kept)]
    features = [
        {"columns": [user, item, *kept], "kind": "categorical"},
        {"columns": histories, "kind": "sequence", "shared_with": [item, *kept], "max_length": 50},
    ]
    return {**values, "features": features}


AMAZON = KnownSet(
    "Amazon's reviews: each against an item that the user has not reviewed, with the user's history", _draft
)
