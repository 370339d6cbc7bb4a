"""MIND, Microsoft's news: behaviors.tsv and news.tsv, of the training days and perhaps of the day after (dev)."""

import re
from typing import Any

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.draft.sets.folder import KnownSet, SetFolder
from ctrpipe.transforms.log.sample import LogSample

COLUMNS = ["impression_id", "user", "time", "history", "impressions"]
TIME_FORMAT = "%m/%d/%Y %I:%M:%S %p"
_LIST = re.compile(r"\s*\S+-[01](\s+\S+-[01])*\s*")
_NEWS = ["item", "category", "subcategory", "title", "abstract", "url", "title_entities", "abstract_entities"]


def _draft(folder: SetFolder) -> dict[str, Any]:
    behaviors = folder.every("behaviors.tsv")
    labelled = [file for file in behaviors if _has_labels(folder, file)]
    if not labelled:
        raise InputError(
            f"{behaviors[0]}: its impressions have no labels, as in the test set; add those of train or dev"
        )
    if others := [file for file in behaviors if file not in labelled]:
        folder.lacking.append(f"{others[0]} has no labels, as in the test set, and is not read")
    news = folder.all("news.tsv") if folder.side("news.tsv") else []
    if 0 < len(news) < len(labelled):
        folder.lacking.append(
            f"{folder.path} has {len(news)} news.tsv for {len(labelled)} behaviors.tsv, whose news may lack"
        )
    for file in news:
        folder.check_width(file, len(_NEWS))
    return configuration(labelled, news)


def _has_labels(folder: SetFolder, file: str) -> bool:
    sample = folder.check_width(file, len(COLUMNS))
    lists = [value for value in list(sample.columns.values())[-1] if value]
    return any(token.endswith(("-0", "-1")) for value in lists[:100] for token in value.split())


def impressions_column(sample: LogSample) -> str | None:
    """Returns the column whose values list items with 0 or 1, as `N55689-1 N35729-0`; None if there is none."""
    for name, values in sample.columns.items():
        present = [value for value in values if value]
        if any(" " in value.strip() for value in present) and all(map(_LIST.fullmatch, present)):
            return name
    return None


def is_behaviors(sample: LogSample) -> bool:
    """Returns whether a file has the shape of behaviors.tsv."""
    return (
        "columns" in sample.data
        and len(sample.columns) == len(COLUMNS)
        and impressions_column(sample) == list(sample.columns)[-1]
    )


def configuration(behaviors: list[str], news: list[str]) -> dict[str, Any]:
    """Returns the values of a configuration.

    Args:
        behaviors: The files of impressions with labels. Of several, the last day is the test day.
        news: The files of the news; empty if there are none.
    """
    split = {"by": "time", "column": "time"}
    data: dict[str, Any] = {
        "paths": behaviors,
        "format": "parquet",
        "labels": {"ctr": "label"},
        "impressions": {"column": "impressions", "columns": COLUMNS},
        "split": {**split, "last": "1d"} if len(behaviors) > 1 else {**split, "validation": 0.1, "test": 0.1},
    }
    features: list[dict[str, Any]] = [{"columns": ["user", "item"], "kind": "categorical"}]
    if news:
        kept = ["category", "subcategory", "title"]
        table = {"paths": news, "on": "item", "columns": _NEWS, "keep": kept, "duplicates": "last"}
        data["join"] = {"tables": [table]}
        features[0]["columns"] += kept[:2]
        features.append(
            {"columns": ["title"], "kind": "multivalent", "separator": " ", "max_length": 20, "min_count": 3}
        )
    features += [
        {"columns": ["history"], "kind": "sequence", "separator": " ", "shared_with": "item", "max_length": 50},
        {"columns": ["time"], "kind": "time", "format": TIME_FORMAT},
    ]
    return {"data": data, "features": features}


MIND = KnownSet("MIND: each item of the lists of impressions becomes a row", _draft)
