"""The files of KDD Cup 2012 track 2, and the columns of the joined log."""

import dataclasses
import pathlib

from ctrpipe.common.errors import InputError

# In the order of training.txt.
COLUMNS = (
    "click",
    "impressions",
    "url",
    "ad",
    "advertiser",
    "depth",
    "position",
    "query",
    "keyword",
    "title",
    "description",
    "user",
)
# The header of the public test file names these, after the number of the row.
_PUBLIC_COLUMNS = (
    "click",
    "impression",
    "displayurl",
    "adid",
    "advertiserid",
    "depth",
    "position",
    "queryid",
    "keywordid",
    "titleid",
    "description",
    "userid",
)
TOKEN_TABLES = ("query", "title", "description", "keyword")
USER_COLUMNS = ("user", "gender", "age")
IDS = ("url", "ad", "advertiser", "query", "keyword", "title", "description", "user", "gender", "age", "depth")
# The keys by which clicks and impressions are counted. None has the position, which is no feature: serving sets it.
HISTORY: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in IDS},
    "query_ad": ("query", "ad"),
    "user_ad": ("user", "ad"),
    "gender_age": ("gender", "age"),
}
WEIGHTS = ("tf_idf_sum", "tf_idf_mean", "tf_idf_max")
# With 11 ids: 28 features of the history, 4 lengths, 12 sums, means and maxima of TF x IDF, and the shared tokens.
NUMBERS = (
    *(f"{kind}_{name}" for name in HISTORY for kind in ("ctr", "impressions")),
    *(f"{table}_{number}" for table in TOKEN_TABLES for number in ("length", *WEIGHTS)),
    "shared_tokens",
)
TEXTS = ("query_tokens", "ad_tokens")
PARTS = ("1_train", "2_validation", "3_test")
PUBLIC_TEST = "4_public_test"

_NAMES = {
    "training": ("training.txt",),
    "query": ("query.txt", "queryid_tokensid.txt"),
    "title": ("title.txt", "titleid_tokensid.txt"),
    "description": ("description.txt", "descriptionid_tokensid.txt"),
    "keyword": ("keyword.txt", "purchasedkeywordid_tokensid.txt"),
    "user": ("user.txt", "userid_profile.txt"),
}
_PUBLIC_TEST_NAMES = ("TestPublic.txt", "TestPublic.csv")


@dataclasses.dataclass(frozen=True)
class Table:
    """A file: this project's names of its columns, in order, and the names in its header, if it has one."""

    path: pathlib.Path
    columns: tuple[str, ...]
    header: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Files:
    """The files of a folder; `public_test` is optional."""

    training: Table
    tokens: dict[str, Table]
    user: Table
    public_test: Table | None

    @property
    def all(self) -> list[Table]:
        """All files that are there."""
        return [self.training, *self.tokens.values(), self.user, *([self.public_test] if self.public_test else [])]


def is_kddcup2012(folder: pathlib.Path) -> bool:
    """Returns whether a folder has the files of lines and of users."""
    return all(_find(folder, _NAMES[name]) for name in ("training", "user"))


def find_tables(folder: pathlib.Path) -> Files:
    """Finds the files of a folder, plain or gzip, under this project's names or the competition's.

    Raises:
        InputError: there is no such folder, or it lacks a file.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give the one with the files of KDD Cup 2012 track 2")
    candidates = {kind: _find(folder, names) for kind, names in _NAMES.items()}
    absent = [" or ".join(_NAMES[kind]) for kind, path in candidates.items() if path is None]
    if absent:
        raise InputError(f"{folder}: lacks {', '.join(absent)} (plain or .gz); put the competition's files there")
    paths = {kind: path for kind, path in candidates.items() if path is not None}
    public = _find(folder, _PUBLIC_TEST_NAMES)
    return Files(
        Table(paths["training"], COLUMNS),
        {name: Table(paths[name], (name, "tokens")) for name in TOKEN_TABLES},
        Table(paths["user"], USER_COLUMNS),
        Table(public, COLUMNS, _PUBLIC_COLUMNS) if public else None,
    )


def _find(folder: pathlib.Path, names: tuple[str, ...]) -> pathlib.Path | None:
    paths = (folder / f"{name}{suffix}" for name in names for suffix in ("", ".gz"))
    return next((path for path in paths if path.is_file()), None)
