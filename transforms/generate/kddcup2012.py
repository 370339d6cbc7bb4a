"""Generates sample files in the layout of KDD Cup 2012 track 2.

Clicks depend on texts, features and position.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from ctrpipe.common.errors import InputError
from ctrpipe.common.files import atomic_path
from ctrpipe.common.hashing import hash_values, splitmix64
from ctrpipe.transforms.generate.blocks import BLOCK_ROWS
from ctrpipe.transforms.generate.click_model import sigmoid, solve_bias
from ctrpipe.transforms.generate.generator import TRUTH_SCHEMA, GenerateResult, Score, check_whole

_TOPICS = 16
_QUERY_LENGTH, _TITLE_LENGTH, _DESCRIPTION_LENGTH, _KEYWORD_LENGTH = (1, 5), (5, 12), (12, 24), (1, 3)
_TITLES, _DESCRIPTIONS, _ADDRESSES = 3, 2, 2  # titles and descriptions per ad, URLs per advertiser
_AGES, _GENDERS = 6, 3
_AD_IDS, _AD_STEP = 3_000_000, 17
_FIRST_POSITIONS = (0.35, 0.75)  # shares of lines with depth 1, and with depth 1 or 2
_ON_TOPIC = 0.8
_UNKNOWN_USER = 0.02
_MOST_IMPRESSIONS = 1000
_OPTIONS = pyarrow.csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none", batch_size=4096)
# Numbers of the blocks that determine the bias. No log uses them, so the bias is the same for all seeds.
_CALIBRATION = range((1 << 32) - 4, 1 << 32)


@dataclasses.dataclass(frozen=True)
class TextClickModel:
    """Parameters of the model that draws the clicks of a line.

    `logit = bias + text (m + a + t) + features (q + u + c) + position (position - 1) + interplay w`

    Text terms: m, the share of the query's tokens that are in the title; a, an effect of the topics of query and ad; t,
    an effect of the title's tokens. Feature terms: effects of the ad (q), of the user (u), and of the user's gender and
    age combined with the ad's topic (c). Interaction term w: each token of the title has an effect on users of one age,
    and a fifth of the opposite effect on users of each other age.

    Args:
        text, features, position: Strengths of the three parts, in logits.
        interplay: Strength of w, in logits: how much the effect of a text depends on the user.
        base_rate: Expected click-through rate.

    Raises:
        InputError: a value is out of range.
    """

    text: float = 1.0
    features: float = 1.0
    position: float = -0.5
    interplay: float = 0.0
    base_rate: float = 0.035

    def __post_init__(self) -> None:
        for name in ("text", "features", "position", "interplay"):
            if not np.isfinite(getattr(self, name)):
                raise InputError(f"{name} should be a finite number. Received: {getattr(self, name)!r}")
        if not 0.0 < self.base_rate < 1.0:
            raise InputError(f"base_rate should lie between 0 and 1. Received: {self.base_rate!r}")


def generate_kddcup2012(
    rows: int,
    seed: int,
    output: pathlib.Path,
    progress: Callable[[int], None] | None = None,
    click_model: TextClickModel | None = None,
) -> GenerateResult:
    """Writes training.txt, query.txt, title.txt, description.txt, keyword.txt, user.txt and truth.parquet.

    The same arguments give the same bytes. In logs of equal length, an id has the same text and effect for any seed, so
    a model trained on one log can be evaluated on another. There are `rows` / 6 distinct queries;
    each takes about 30 bytes of memory.

    Args:
        rows: Number of lines of training.txt, at least 1. A line has one or more impressions.
        seed: Non-negative seed of the lines.
        output: Output folder, created if it does not exist.
        progress: Called with the number of finished lines after every block.
        click_model: Parameters of the click model; None for the defaults.

    Returns:
        Number of lines and clicks; best AUC and log loss of the true probabilities over all impressions.

    Raises:
        InputError: an argument is invalid, or the folder cannot be written.
    """
    check_whole(rows=(rows, 1), seed=(seed, 0))
    if output.exists() and not output.is_dir():
        raise InputError(f"{output}: not a folder; this format is several files, name a folder for them")
    world = _World(rows)
    model = click_model or TextClickModel()
    score = Score()
    training, truth = output / "training.txt", output / "truth.parquet"
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name, table in world.tables():
            with atomic_path(output / name) as path, open(path, "wb") as file:
                _write_csv(file, table)
        with atomic_path(training) as lines_path, atomic_path(truth) as truth_path:
            _write_lines(world, model, rows, seed, lines_path, truth_path, score, progress)
    except OSError as error:
        raise InputError(f"cannot write {output}: {error.strerror or error}") from error
    return GenerateResult(rows, score.positives, score.auc(), score.loss / score.rows, training, truth)


class _World:
    """All ids with their texts, computed by hashing. The number of ids grows with the number of lines."""

    def __init__(self, rows: int):
        self.users = max(50, rows // 5)
        self.queries = max(40, rows // 6)
        self.ads = max(2 * _TOPICS, rows // 150)
        self.advertisers = max(8, self.ads // 40)
        self.keywords = max(2 * _TOPICS, rows // 125)
        self._tokens = max(20, int(10 * rows**0.5) // _TOPICS)  # tokens per topic
        self.query_tokens = self._texts("query", np.arange(self.queries), self.queries, _QUERY_LENGTH)
        titles = np.arange(self.ads * _TITLES)
        self.title_tokens = self._texts("title", titles // _TITLES, len(titles), _TITLE_LENGTH)

    def tables(self) -> Iterator[tuple[str, Iterator[pa.Table]]]:
        """Yields name and tables of each file that the lines refer to."""
        yield "query.txt", _token_tables(lambda start, stop: self.query_tokens[start:stop], self.queries)
        yield "title.txt", _token_tables(lambda start, stop: self.title_tokens[start:stop], len(self.title_tokens))

        def descriptions(start: int, stop: int) -> np.ndarray:
            ids = np.arange(start, stop)
            return self._texts("description", ids // _DESCRIPTIONS, ids, _DESCRIPTION_LENGTH)

        yield "description.txt", _token_tables(descriptions, self.ads * _DESCRIPTIONS)

        def keywords(start: int, stop: int) -> np.ndarray:
            return self._texts("keyword", np.arange(start, stop), np.arange(start, stop), _KEYWORD_LENGTH)

        yield "keyword.txt", _token_tables(keywords, self.keywords)
        yield "user.txt", self._user_tables()

    def _user_tables(self) -> Iterator[pa.Table]:
        for start in range(0, self.users, BLOCK_ROWS):
            users = np.arange(start, min(start + BLOCK_ROWS, self.users))
            yield pa.table({"user": users + 1, "gender": self.gender(users), "age": self.age(users) + 1})

    def _texts(self, name: str, owners: np.ndarray, ids: np.ndarray | int, lengths: tuple[int, int]) -> np.ndarray:
        """Returns tokens, most of them from the owner's topic, int32 [N, longest], padded with -1."""
        ids = np.arange(ids) if isinstance(ids, int) else ids
        shortest, longest = lengths
        length = shortest + (_uniform(f"{name}/length", ids) * (longest - shortest + 1)).astype(np.int64)
        tokens = np.full((len(ids), longest), -1, np.int32)
        for place in range(longest):
            topic = np.where(
                _uniform(f"{name}/{place}/any", ids) < _ON_TOPIC,
                topic_of(owners),
                (_uniform(f"{name}/{place}/topic", ids) * _TOPICS).astype(np.int64),
            )
            rank = (_uniform(f"{name}/{place}/rank", ids) ** 2 * self._tokens).astype(np.int64)
            tokens[:, place] = np.where(place < length, topic + _TOPICS * rank, -1)
        return tokens

    def gender(self, users: np.ndarray) -> np.ndarray:
        return (_uniform("gender", users) * _GENDERS).astype(np.int64)

    def age(self, users: np.ndarray) -> np.ndarray:
        return (_uniform("age", users) * _AGES).astype(np.int64)


def topic_of(ids: np.ndarray) -> np.ndarray:
    """Returns the topics of queries, ads or keywords."""
    return ids % _TOPICS


def _uniform(key: str, ids: np.ndarray) -> np.ndarray:
    """Returns a hash of each id as a uniform number, float64 [N] in [0, 1)."""
    return (hash_values(f"kddcup2012/{key}", ids) >> np.uint64(11)) * 2.0**-53


def _effect(key: str, ids: np.ndarray) -> np.ndarray:
    """Returns an effect for each id, float64 [N] with mean 0 and variance 1."""
    effects: np.ndarray = (2 * _uniform(key, ids) - 1) * 3.0**0.5
    return effects


def _token_tables(texts: Callable[[int, int], np.ndarray], rows: int) -> Iterator[pa.Table]:
    for start in range(0, rows, BLOCK_ROWS):
        tokens = texts(start, min(start + BLOCK_ROWS, rows))
        kept = tokens >= 0
        offsets = np.append(0, np.cumsum(kept.sum(1))).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(tokens[kept]).cast(pa.string()))
        yield pa.table({"id": np.arange(start, start + len(tokens)), "tokens": pc.binary_join(lists, "|")})


@dataclasses.dataclass(frozen=True)
class _Block:
    """Lines as inputs of the click model, int64 [N] each; user -1 is unknown."""

    query: np.ndarray
    ad: np.ndarray
    title: np.ndarray
    description: np.ndarray
    keyword: np.ndarray
    address: np.ndarray
    user: np.ndarray
    depth: np.ndarray
    position: np.ndarray
    impressions: np.ndarray
    uniform: np.ndarray  # float64 [sum of impressions] in [0, 1), random numbers of the clicks


def _draw(world: _World, sequence: np.random.SeedSequence, rows: int) -> _Block:
    bits = np.random.PCG64(sequence)

    def uniform(count: int) -> np.ndarray:
        # Raw bits: their stream is the same in all numpy versions, unlike the methods of Generator.
        return (bits.random_raw(count) >> np.uint64(11)) * 2.0**-53

    def rank(count: int, power: float) -> np.ndarray:
        return (uniform(rows) ** power * count).astype(np.int64)

    query = rank(world.queries, 3)
    on_topic = uniform(rows) < _ON_TOPIC
    topic = np.where(on_topic, topic_of(query), rank(_TOPICS, 1))
    ad = topic + _TOPICS * rank(world.ads // _TOPICS, 2)
    keyword = topic + _TOPICS * rank(world.keywords // _TOPICS, 2)
    user = np.where(uniform(rows) < _UNKNOWN_USER, -1, rank(world.users, 2))
    depth = 1 + np.searchsorted(_FIRST_POSITIONS, uniform(rows), side="right")
    position = 1 + (uniform(rows) * depth).astype(np.int64)
    impressions = np.minimum(np.maximum(uniform(rows), 1e-9) ** -0.45, _MOST_IMPRESSIONS).astype(np.int64)
    return _Block(
        query,
        ad,
        ad * _TITLES + rank(_TITLES, 1),
        ad * _DESCRIPTIONS + rank(_DESCRIPTIONS, 1),
        keyword,
        ad % world.advertisers * _ADDRESSES + rank(_ADDRESSES, 1),
        user,
        depth,
        position,
        impressions,
        uniform(int(impressions.sum())),
    )


def _logits(world: _World, model: TextClickModel, block: _Block) -> np.ndarray:
    """Returns the logits without the bias, float64 [N]."""
    query, title = world.query_tokens[block.query], world.title_tokens[block.title]
    is_token = query >= 0
    match = ((query[:, :, None] == title[:, None, :]).any(2) & is_token).sum(1) / is_token.sum(1)
    ad_topic = topic_of(block.ad)
    affinity = _effect("affinity", topic_of(block.query) * _TOPICS + ad_topic)
    in_title = title >= 0
    appeal = np.where(in_title, _effect("appeal", np.maximum(title, 0).ravel()).reshape(title.shape), 0.0)
    text = 1.5 * match + 0.5 * affinity + 0.7 * appeal.sum(1) / in_title.sum(1) ** 0.5
    known = block.user >= 0
    users = np.maximum(block.user, 0)
    group = world.gender(users) * _AGES + world.age(users)
    user = 0.5 * _effect("user", users) + 0.6 * _effect("taste", group * _TOPICS + ad_topic)
    features = 0.6 * _effect("ad", block.ad) + np.where(known, user, 0.0)
    logits: np.ndarray = model.text * text + model.features * features + model.position * (block.position - 1)
    if model.interplay:
        age = np.where(known, world.age(users), -1)
        logits += model.interplay * _interplay(title, age)
    return logits


def _interplay(title: np.ndarray, age: np.ndarray) -> np.ndarray:
    """Returns the effects of title tokens `[N, longest]` on users of ages `[N]`, with a variance of about 1.

    The effects of a token sum to 0 over all ages, so no text has a main effect. An unknown age, -1, has no effect.
    """
    tokens = np.maximum(title, 0).ravel()
    audience = (_uniform("audience", tokens) * _AGES).astype(np.int64).reshape(title.shape)
    effect = _effect("interplay", tokens).reshape(title.shape)
    share = np.where(audience == age[:, None], 1.0, -1.0 / (_AGES - 1))
    is_token = title >= 0
    total = np.where(is_token, effect * share, 0.0).sum(1) / (is_token.sum(1) / (_AGES - 1)) ** 0.5
    effects: np.ndarray = np.where(age >= 0, total, 0.0)
    return effects


def _bias(world: _World, model: TextClickModel) -> float:
    sequences = [np.random.SeedSequence(0, spawn_key=(number,)) for number in _CALIBRATION]
    logits = [_logits(world, model, _draw(world, sequence, BLOCK_ROWS)) for sequence in sequences]
    return solve_bias(np.concatenate(logits), model.base_rate)


def _write_lines(
    world: _World,
    model: TextClickModel,
    rows: int,
    seed: int,
    lines_path: pathlib.Path,
    truth_path: pathlib.Path,
    score: Score,
    progress: Callable[[int], None] | None,
) -> None:
    bias = _bias(world, model)
    with open(lines_path, "wb") as file, pyarrow.parquet.ParquetWriter(truth_path, TRUTH_SCHEMA) as truth:
        for start in range(0, rows, BLOCK_ROWS):
            sequence = np.random.SeedSequence(seed, spawn_key=(start // BLOCK_ROWS,))
            block = _draw(world, sequence, min(BLOCK_ROWS, rows - start))
            probabilities = sigmoid(_logits(world, model, block) + bias)
            lines = np.repeat(np.arange(len(probabilities)), block.impressions)
            clicked = (block.uniform < probabilities[lines]).astype(np.int8)
            clicks = np.bincount(lines, clicked, len(probabilities)).astype(np.int64)
            _write_csv(file, [_lines_table(world, block, clicks)])
            numbers = np.arange(start, start + len(probabilities)) + 1
            truth.write_table(pa.table([numbers, probabilities], schema=TRUTH_SCHEMA))
            score.add(clicked, probabilities[lines])
            if progress is not None:
                progress(start + len(probabilities))


def _lines_table(world: _World, block: _Block, clicks: np.ndarray) -> pa.Table:
    columns: Sequence[np.ndarray] = (
        clicks,
        block.impressions,
        splitmix64(block.address),
        _AD_IDS + _AD_STEP * block.ad,
        block.ad % world.advertisers + 1,
        block.depth,
        block.position,
        block.query,
        block.keyword,
        block.title,
        block.description,
        block.user + 1,
    )
    return pa.table([pa.array(values) for values in columns], names=[str(index) for index in range(len(columns))])


def _write_csv(file: BinaryIO, tables: Iterable[pa.Table]) -> None:
    writer: pyarrow.csv.CSVWriter | None = None
    for table in tables:
        writer = writer or pyarrow.csv.CSVWriter(file, table.schema, write_options=_OPTIONS)
        writer.write_table(table)
