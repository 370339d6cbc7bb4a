"""Criteo's Display Advertising Challenge of 2014 (train.txt), and its terabyte of click logs (day_0 to day_23)."""

import re
from typing import Any

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.draft.sets.folder import KnownSet, SetFolder, reading

_COLUMNS = ["label", "I1..I13", "C1..C26"]
_WIDTH = 40
_FEATURES: list[dict[str, Any]] = [
    {"columns": ["I1..I13"], "kind": "numeric", "transform": "log_bucketize"},
    {"columns": ["C1..C26"], "kind": "categorical", "min_count": 10},
]


def _challenge(folder: SetFolder) -> dict[str, Any]:
    train = folder.one("train.txt")
    sample = folder.check_width(train, _WIDTH)
    split = {"by": "order", "validation": 0.1, "test": 0.1}  # the rows are in the order of time
    return _configuration([train], reading(sample), split)


def _terabyte(folder: SetFolder) -> dict[str, Any]:
    days = folder.every("day_*")
    if len(days) < 3:
        raise InputError(
            f"{folder.path}: {len(days)} of the days day_0 to day_23; put three there at least: the last one is the "
            "test day, and the one before for validation"
        )
    numbers = [int(number[1]) for day in days if (number := re.search(r"day_(\d+)", day.rpartition("/")[2]))]
    if absent := sorted(set(range(min(numbers, default=0), max(numbers, default=0))) - set(numbers)):
        names = ", ".join(f"day_{number}" for number in absent)
        folder.lacking.append(f"{folder.path} has no {names}, between days that it has")
    sample = folder.check_width(days[0], _WIDTH)
    *train, validation, test = days
    split = {"by": "files", "files": {"train": train, "validation": [validation], "test": [test]}}
    return _configuration([], reading(sample), split)


def _configuration(paths: list[str], read: dict[str, Any], split: dict[str, Any]) -> dict[str, Any]:
    data = {
        **({"paths": paths} if paths else {}),
        **read,
        "columns": _COLUMNS,
        "labels": {"ctr": "label"},
        "split": split,
    }
    return {"data": data, "features": _FEATURES}


CRITEO = KnownSet("Criteo's Display Advertising Challenge (Kaggle, 2014)", _challenge)
CRITEO_1TB = KnownSet("Criteo's terabyte of click logs, one file a day", _terabyte)
