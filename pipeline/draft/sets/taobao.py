"""Taobao: the display ads of Tianchi (raw_sample.csv with its side tables), or the events of UserBehavior.csv."""

import pathlib
from typing import Any

from ctrpipe.pipeline.draft.sets.folder import KnownSet, SetFolder, parts_by_time

_EVENTS = ["user", "item", "category", "behavior", "time"]


def _draft(folder: SetFolder) -> dict[str, Any]:
    log = folder.one("raw_sample.csv", "UserBehavior.csv")
    is_ads = pathlib.Path(log).name.startswith("raw_sample")
    return _of_ads(folder, log) if is_ads else _of_events(folder, log)


def _of_ads(folder: SetFolder, samples: str) -> dict[str, Any]:
    folder.check_columns(samples, ["user", "time_stamp", "adgroup_id", "pid", "clk"])
    categories = ["user", "adgroup_id", "pid"]
    tables: list[dict[str, Any]] = []
    numbers = []
    if ads := folder.side("ad_feature.csv"):
        kept = ["cate_id", "campaign_id", "customer", "brand", "price"]
        folder.check_columns(ads, ["adgroup_id", *kept])
        tables.append({"paths": [ads], "on": "adgroup_id", "keep": kept})
        categories += kept[:-1]
        numbers.append("price")
    if users := folder.side("user_profile.csv"):
        profile = [name for name in folder.check_columns(users, ["userid"]).columns if name != "userid"]
        tables.append({"paths": [users], "on": {"user": "userid"}, "keep": profile})
        categories += profile
    data: dict[str, Any] = {
        "paths": [samples],
        **({"format": "parquet", "join": {"tables": tables}} if tables else {"format": "csv", "header": True}),
        "labels": {"ctr": "clk"},
        "split": {"by": "time", "column": "time_stamp", "last": "1d"},
    }
    features = [
        {"columns": categories, "kind": "categorical", "min_count": 2},
        *([{"columns": numbers, "kind": "numeric", "transform": "log_bucketize"}] if numbers else []),
        {"columns": ["time_stamp"], "kind": "time", "timezone": "Asia/Shanghai"},
    ]
    return {"data": data, "features": features}


def _of_events(folder: SetFolder, file: str) -> dict[str, Any]:
    folder.check_width(file, len(_EVENTS))
    events = {
        **{"columns": _EVENTS, "label": {"column": "behavior", "positive": ["buy"], "negative": ["pv", "cart", "fav"]}},
        **{"history_of": "all", "item_columns": ["category"], "sequences": ["category"], "max_length": 50},
    }
    values = parts_by_time(events)
    values["data"]["paths"] = [file]
    histories = {"columns": ["item_history", "category_history"], "kind": "sequence", "max_length": 50}
    features = [
        {"columns": ["user", "item", "category"], "kind": "categorical", "min_count": 2},
        {**histories, "shared_with": ["item", "category"]},
    ]
    return {**values, "features": features}


TAOBAO = KnownSet("Taobao: display ads with ads' and users' tables, or purchases among the events of users", _draft)
