"""Avazu's click-through rate prediction (Kaggle, 2014): train, with a header, in the order of the hours."""

from typing import Any

from ctrpipe.pipeline.draft.sets.folder import KnownSet, SetFolder, reading

_CATEGORIES = [
    *("C1", "banner_pos", "site_id", "site_domain", "site_category", "app_id", "app_domain", "app_category"),
    *("device_id", "device_ip", "device_model", "device_type", "device_conn_type", *(f"C{n}" for n in range(14, 22))),
]


def _draft(folder: SetFolder) -> dict[str, Any]:
    train = folder.one("train", "train.csv")
    sample = folder.check_columns(train, ["click", "hour", *_CATEGORIES])
    data = {
        "paths": [train],
        **reading(sample),
        "labels": {"ctr": "click"},
        "split": {"by": "order", "validation": 0.1, "test": 0.1},
    }
    features = [
        {"columns": ["hour"], "kind": "time", "format": "yymmddhh"},
        {"columns": _CATEGORIES, "kind": "categorical", "min_count": 4},
    ]
    return {"data": data, "features": features}


AVAZU = KnownSet("Avazu's click-through rate prediction (Kaggle, 2014)", _draft)
