"""The file names and columns of KDD Cup 2012 track 2, and the columns of the joined log."""

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
# Column names in the header of the public test file, after the row number.
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
# The keys of the click and impression counts. None contains the position: it is not a feature, because serving sets it.
HISTORY: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in IDS},
    "query_ad": ("query", "ad"),
    "user_ad": ("user", "ad"),
    "gender_age": ("gender", "age"),
}
WEIGHTS = ("tf_idf_sum", "tf_idf_mean", "tf_idf_max")
# For 11 ids: 28 history features, 4 lengths, 12 TF x IDF sums, means and maxima, and the number of shared tokens.
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
    """A file: its path, this project's column names in file order, and the names in its header, if any."""

    path: pathlib.Path
    columns: tuple[str, ...]
    header: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Files:
    """The files of a KDD Cup folder; `public_test` is optional."""

    training: Table
    tokens: dict[str, Table]
    user: Table
    public_test: Table | None

    @property
    def all(self) -> list[Table]:
        """All existing files."""
        return [self.training, *self.tokens.values(), self.user, *([self.public_test] if self.public_test else [])]


def is_kddcup2012(folder: pathlib.Path) -> bool:
    """Returns whether a folder contains the training file and the user file."""
    return all(_find(folder, _NAMES[name]) for name in ("training", "user"))


def find_tables(folder: pathlib.Path) -> Files:
    """Finds the files in a folder, plain or gzip, named as in this project or as in the competition.

    Raises:
        InputError: the folder does not exist or lacks a file.
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
