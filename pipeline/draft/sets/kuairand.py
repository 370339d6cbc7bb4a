"""KuaiRand (Pure, 1K, 27K): the standard logs of Kuaishou, with the tables of users and videos."""

from typing import Any

from ctrpipe.pipeline.draft.sets.folder import KnownSet, SetFolder

_OF_LOG = ["user_id", "video_id", "time_ms", "is_click", "tab", "duration_ms"]
_VIDEO_CATEGORIES = ["author_id", "video_type", "upload_type", "music_id", "music_type"]
_NUMBERS = ("follow_user_num", "fans_user_num", "friend_user_num", "register_days")


def _draft(folder: SetFolder) -> dict[str, Any]:
    logs = folder.every("log_standard_*.csv")
    for file in logs:
        folder.check_columns(file, _OF_LOG)
    categories, numbers, tables = ["user_id", "video_id", "tab"], ["duration_ms"], []
    lists = []
    if folder.side("user_features_*.csv"):
        users = folder.all("user_features_*.csv")
        names = [name for name in folder.check_columns(users[0], ["user_id"]).columns if name != "user_id"]
        tables.append({"paths": users, "on": "user_id", "keep": names})
        numbers += [name for name in names if name in _NUMBERS]
        categories += [name for name in names if name not in _NUMBERS]
    if folder.side("video_features_basic_*.csv"):
        videos = folder.all("video_features_basic_*.csv")
        kept = [*_VIDEO_CATEGORIES, "tag"]
        folder.check_columns(videos[0], ["video_id", *kept])
        tables.append({"paths": videos, "on": "video_id", "keep": kept})
        categories += _VIDEO_CATEGORIES
        lists = [{"columns": ["tag"], "kind": "multivalent", "separator": ",", "max_length": 5}]
    data = {
        "paths": logs,
        **({"format": "parquet", "join": {"tables": tables}} if tables else {"format": "csv", "header": True}),
        "labels": {"ctr": "is_click"},
        "split": {"by": "time", "column": "time_ms", "validation": 0.1, "test": 0.1},
    }
    features = [
        {"columns": categories, "kind": "categorical", "min_count": 2},
        {"columns": numbers, "kind": "numeric", "transform": "log_bucketize"},
        *lists,
        {"columns": ["time_ms"], "kind": "time", "timezone": "Asia/Shanghai"},
    ]
    return {"data": data, "features": features}


KUAIRAND = KnownSet("KuaiRand: clicks in the standard logs, with the tables of users and videos", _draft)
