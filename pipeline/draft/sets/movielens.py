"""MovieLens of GroupLens: 100K (u.data), 1M and 10M (ratings.dat, with ::), 20M, 25M, 32M and latest (ratings.csv)."""

import pathlib
from typing import Any

from ctrpipe.pipeline.draft.sets.folder import KnownSet, SetFolder, parts_by_time

_USER, _ITEM, _RATING, _TIME = "user", "item", "rating", "time"


def _draft(folder: SetFolder) -> dict[str, Any]:
    ratings = folder.one("u.data", "ratings.dat", "ratings.csv")
    name = pathlib.Path(ratings).name
    if name.startswith("u.data"):
        return _of_100k(folder, ratings)
    return _with_colons(folder, ratings) if name.startswith("ratings.dat") else _with_header(folder, ratings)


def _of_100k(folder: SetFolder, ratings: str) -> dict[str, Any]:
    folder.check_width(ratings, 4)
    users = folder.side("u.user")
    tables = []
    if users:
        folder.check_width(users, 5)
        columns = [_USER, "age", "gender", "occupation", "zip"]
        tables = [_table(users, _USER, columns, ["age", "gender", "occupation"])]
    return _configuration(ratings, [_USER, _ITEM, _RATING, _TIME], tables, names=True)


def _with_colons(folder: SetFolder, ratings: str) -> dict[str, Any]:
    folder.check_width(ratings, 4)
    tables = []
    if users := folder.side("users.dat"):
        folder.check_width(users, 5)
        columns = [_USER, "gender", "age", "occupation", "zip"]
        tables.append(_table(users, _USER, columns, ["age", "gender", "occupation"]))
    if movies := folder.side("movies.dat"):
        folder.check_width(movies, 3)
        tables.append(_table(movies, _ITEM, [_ITEM, "title", "genres"], ["genres"]))
    return _configuration(ratings, [_USER, _ITEM, _RATING, _TIME], tables, names=True)


def _with_header(folder: SetFolder, ratings: str) -> dict[str, Any]:
    columns = ["userId", "movieId", "rating", "timestamp"]
    folder.check_columns(ratings, columns)
    tables = []
    if movies := folder.side("movies.csv"):
        folder.check_columns(movies, ["movieId", "genres"])
        tables.append({"paths": [movies], "on": "movieId", "keep": ["genres"]})
    return _configuration(ratings, columns, tables, names=False)


def _table(path: str, key: str, columns: list[str], keep: list[str]) -> dict[str, Any]:
    return {"paths": [path], "on": key, "columns": columns, "keep": keep}


def _configuration(ratings: str, columns: list[str], tables: list[dict[str, Any]], names: bool) -> dict[str, Any]:
    user, item, rating, time = columns
    kept = [name for table in tables for name in table["keep"]]
    events: dict[str, Any] = {
        **{"user": user, "item": item, "time": time, "label": {"column": rating, "threshold": 4}},
        **{"split": "time", "validation": 0.1, "test": 0.1, "max_length": 50},
    }
    if "genres" in kept:
        events["item_columns"] = ["genres"]
    if names and not tables:  # joined files name their columns
        events["columns"] = columns
    values = parts_by_time(events)
    values["data"]["paths"] = [ratings]
    if tables:
        values["data"]["join"] = {**({"columns": columns} if names else {}), "tables": tables}
    single = [user, item, *(name for name in kept if name != "genres")]
    features: list[dict[str, Any]] = [{"columns": single, "kind": "categorical"}]
    if "genres" in kept:
        features.append({"columns": ["genres"], "kind": "multivalent", "separator": "|", "max_length": 6})
    features.append({"columns": [f"{item}_history"], "kind": "sequence", "shared_with": item, "max_length": 50})
    return {**values, "features": features}


MOVIELENS = KnownSet("MovieLens: ratings of 4 and more against others, with the user's history", _draft)
