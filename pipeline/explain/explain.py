"""`ctrpipe explain`: what a model uses, what its log holds, and why a row has its probability."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from common.errors import InputError
from common.files import write_json
from common.progress import announce, throttled_announce
from models.explain.information import chance_complementarity, complementarity, value_pairs
from models.explain.pair_counts import PairCounts
from models.metrics import ranks
from models.registry import model_class
from models.saved import load_model, read_description
from pipeline.explain.attention import AttentionLayer, attention_of_rows, picked_pairs
from pipeline.explain.importance import Importance, Interaction, Permuter, Score, groups_of
from pipeline.explain.rows import RowExplained, gradients_of_row, shapley_of_row
from pipeline.explain.sample import Sample
from pipeline.explain.source import read_row, read_rows
from pipeline.explain.value_codes import LogCodes
from pipeline.trained_model import TrainedModel
from serving.scoring.rows import Scorer
from transforms.features.pack_rows import tensor_slices
from transforms.log.spec import LogSpec

SCREENED = 10  # columns whose pairs are looked at, the most important ones
VALUE_PAIRS = 20  # pairs of values that are shown
LEAST_ROWS = 100  # of a pair of values that is shown
CHANCE_DRAWS = 40
ATTENDED_ROWS = 10_000  # of the sample, on which attention is averaged
CODED_ROWS = 50_000  # of the log, drawn, from which values' codes are learned
LEVEL = 0.95
GRADIENTS, SHAPLEY, BOTH = METHODS = ("gradients", "shapley", "both")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What to ask.

    Attributes:
        rows: The largest number of rows of the sample that the model is asked about.
        repeats: How often a column is permuted.
        pairs: How many pairs of columns are permuted.
        groups: Named groups of columns.
        slice: A column and its value, to which the sample is limited; None for all rows.
        seed: Of all draws.
    """

    rows: int = 20_000
    repeats: int = 2
    pairs: int = 10
    groups: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    slice: tuple[str, str] | None = None
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class ColumnPair:
    """A pair of columns, what the log says of it and what the model loses without it.

    Attributes:
        first, second: The columns.
        complementarity: In bits, less the mean of permuted clicks: Miller's and Madow's correction does not suffice
            where most values are rare.
        chance: The ends of the 95% interval of permuted clicks, in bits, around their mean.
        z: The complementarity in standard deviations of permuted clicks; 0 where these have none.
        interaction: What permuting says; None where the pair was not permuted.
        picked: How often the model's attention picks one for the other; None for a model without attention over both.
    """

    first: str
    second: str
    complementarity: float
    chance: tuple[float, float]
    z: float
    interaction: Interaction | None = None
    picked: float | None = None


@dataclasses.dataclass(frozen=True)
class ValuePair:
    """A pair of values of two columns (Attention-Net, Table 4). The rates are of clicks."""

    first: str
    first_value: str
    second: str
    second_value: str
    rows: int
    complementarity: float
    rate_of_first: float
    rate_of_second: float
    rate_of_both: float


def explain(source: TrainedModel, data: Sequence[str], settings: Settings) -> dict[str, Any]:
    """Returns what the model uses and what the log holds.

    A sample of the log's rows is drawn, the pairs of all rows are counted, and the model is asked about the sample.

    Args:
        source: The model.
        data: Files and globs of a log; none for the run's test rows.
        settings: What to ask.

    Raises:
        InputError: a column is unknown, the log is not one of the model's, or the sample has too few rows of a class.
    """
    scorer = Scorer(source.version)
    try:
        groups = check_groups(scorer.spec, settings)
        rows, codes, counts = _read(source, data, scorer.spec, settings)
        task = scorer.tasks[0]
        labels = _labels(rows, scorer.spec, settings)
        announce(f"Permuting {len(groups)} columns of {rows.num_rows:,} rows")
        permuter = Permuter(score_with(scorer), rows, labels, settings.repeats, settings.seed)
        report = throttled_announce()
        importances: list[Importance] = []
        for name, columns in groups.items():
            report(f"Permuting: {len(importances)} of {len(groups)} columns")
            importances.append(permuter.importance(name, columns))
        importances.sort(key=lambda one: -one.log_loss.value)
        pairs = _permute_pairs(_column_pairs(codes, counts, settings.seed), importances, permuter, settings.pairs)
        attention = _attention(source, scorer, rows)
        shares = picked_pairs(attention)
        pairs = [dataclasses.replace(one, picked=shares.get(frozenset((one.first, one.second)))) for one in pairs]
    finally:
        scorer.close()
    return {
        "model": str(source.version),
        "task": task,
        "rows": rows.num_rows,
        "slice": "=".join(settings.slice) if settings.slice else None,
        "auc": permuter.auc,
        "log_loss": permuter.log_loss,
        "scorings": permuter.scorings,
        "counted_rows": counts.rows,
        "columns": [dataclasses.asdict(one) for one in importances],
        "pairs": [dataclasses.asdict(one) for one in pairs],
        "rank_correlation": _agreement(pairs),
        "rank_correlation_of_attention": _correlation(
            [(one.complementarity, one.picked) for one in pairs if one.picked is not None]
        ),
        "attention": [dataclasses.asdict(layer) for layer in attention],
        "values": [dataclasses.asdict(one) for one in _value_pairs(codes, counts)],
    }


def explain_line(
    source: TrainedModel,
    line: str,
    data: Sequence[str],
    settings: Settings,
    baseline: str,
    orders: int,
    method: str | None,
) -> list[RowExplained]:
    """Returns why one row has its probability, by each method that was asked for.

    Args:
        source: The model.
        line: FILE:LINE.
        data: As in `explain`; read where the baseline is the average.
        settings: What to ask; of a sample, `rows` limits those that the row is compared with.
        baseline: What the row is compared with: "average", rows of the log; "missing", a row of missing values; or
            FILE:LINE, another row.
        orders: How many orders of the columns Shapley values draw.
        method: One of METHODS; None for gradients where the model has them, and otherwise Shapley values.

    Raises:
        InputError: as `explain`, a line is no row of the model's log, or the model has no gradients.
    """
    scorer = Scorer(source.version)
    try:
        groups = check_groups(scorer.spec, settings)
        row = pa.Table.from_batches([read_row(line, scorer.spec)])
        others = None
        if baseline == "average":
            others = _read_sample(source, data, scorer.spec, settings)
        elif baseline != "missing":
            others = pa.Table.from_batches([read_row(baseline, scorer.spec, "--baseline")])
        found = []
        reason = None if method == SHAPLEY else _no_gradients(source, scorer)
        if reason and method is not None:
            raise InputError(f"--method {method}: {reason}; take --method {SHAPLEY}")
        if method != SHAPLEY and not reason:
            found.append(_by_gradients(source, scorer, row, others, groups))
        if method in (SHAPLEY, BOTH) or reason:
            random = np.random.default_rng(settings.seed)
            found.append(shapley_of_row(score_with(scorer), row, others, groups, orders, random))
        return found
    finally:
        scorer.close()


def _no_gradients(source: TrainedModel, scorer: Scorer) -> str | None:
    """Returns why a model cannot be explained by gradients; None where it can."""
    kept = source.kept()
    if kept is None:
        return f"{source.version}: its Keras model was not kept beside its run"
    if not scorer.packs:
        return f"{source.version}: it has no signature transform_raw"
    if model_class(read_description(kept)["name"]).boosts:
        return "boosted trees have no gradients"
    return None


def _attention(source: TrainedModel, scorer: Scorer, rows: pa.Table) -> list[AttentionLayer]:
    """Returns what the attention of the Keras model picks on rows; [] where there is no attention or no such model."""
    kept = source.kept()
    if kept is None or not scorer.packs or not hasattr(model_class(read_description(kept)["name"]), "attention_maps"):
        return []
    placed = _with_position(rows.slice(0, ATTENDED_ROWS), scorer.spec, source.position())
    return attention_of_rows(load_model(kept), scorer.packed(placed))


def _by_gradients(
    source: TrainedModel, scorer: Scorer, row: pa.Table, others: pa.Table | None, groups: dict[str, list[str]]
) -> RowExplained:
    from pipeline.explain.gradients import RowGradients  # Keras: seconds that other questions do without

    kept = source.kept()
    assert kept is not None  # _no_gradients has looked
    position = source.position()

    def pack(rows: pa.Table) -> dict[str, npt.NDArray[Any]]:
        placed = _with_position(rows, scorer.spec, position)
        batches = list(scorer.packed(placed))
        return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}

    columns = [
        target.column
        for target in sorted(tensor_slices(scorer.spec), key=lambda target: target.first)
        if target.tensor == "ids"
        for _ in range(target.first, target.stop)
    ]
    return gradients_of_row(RowGradients(load_model(kept), columns), pack, row, others, groups, scorer.spec)


def _with_position(rows: pa.Table, spec: LogSpec, position: Mapping[str, str | float]) -> pa.Table:
    """Returns the rows with the position that the served model takes for every request."""
    for name, value in position.items():
        kind, plain_value = (pa.float32(), float(value)) if name in spec.numeric_columns else (pa.binary(), str(value))
        column = pa.array([plain_value] * rows.num_rows, pa.float32() if kind == pa.float32() else pa.string())
        rows = rows.set_column(rows.column_names.index(name), name, column.cast(kind))
    return rows


def score_with(scorer: Scorer) -> Score:
    """Returns the model as a function to the primary task's probabilities."""
    task = scorer.tasks[0]
    return lambda rows: scorer(rows)[task]


def check_groups(spec: LogSpec, settings: Settings) -> dict[str, list[str]]:
    """Returns the columns that are permuted together, by name.

    Raises:
        InputError: a column of a group or of the slice is unknown, or a column is in two groups.
    """
    known = spec.feature_columns
    for name, members in settings.groups.items():
        if unknown := [column for column in members if column not in known]:
            raise InputError(f"--group {name}: {unknown[0]} is no column of the model; it has {', '.join(known)}")
    grouped = [column for members in settings.groups.values() for column in members]
    if repeated := [column for column in grouped if grouped.count(column) > 1]:
        raise InputError(f"--group: {repeated[0]} is in two groups; a column can be in one")
    if settings.slice and settings.slice[0] not in spec.text_columns:
        raise InputError(
            f"--slice {settings.slice[0]}: no column of text of the model; it has {', '.join(spec.text_columns)}"
        )
    return groups_of(known, spec.text.columns if spec.text else (), settings.groups)


def _read(
    source: TrainedModel, data: Sequence[str], spec: LogSpec, settings: Settings
) -> tuple[pa.Table, LogCodes, PairCounts]:
    """Returns a sample of the rows, the codes of their values, and the counts of all rows by pairs of columns.

    The log is read twice: for the sample, from which the codes are learned, and to count. A log may be sorted, so that
    its first rows tell little of the others.
    """
    sample = Sample(max(settings.rows, CODED_ROWS), np.random.default_rng(settings.seed))
    for batch in read_rows(source, data, spec):
        sample.add(_in_slice(batch, settings))
    learned = sample.table()
    if learned is None or not learned.num_rows:
        raise _no_rows(settings)
    codes = LogCodes(learned, spec)
    counts = PairCounts([len(names) for names in codes.names])
    for batch in read_rows(source, data, spec):
        rows = _in_slice(batch, settings)
        counts.add(codes.codes(rows), rows[spec.label_columns[0]].to_numpy(zero_copy_only=False) > 0.5)
    kept = sample.table(settings.rows)
    assert kept is not None
    return kept, codes, counts


def _read_sample(source: TrainedModel, data: Sequence[str], spec: LogSpec, settings: Settings) -> pa.Table:
    sample = Sample(settings.rows, np.random.default_rng(settings.seed))
    for batch in read_rows(source, data, spec):
        sample.add(_in_slice(batch, settings))
    rows = sample.table()
    if rows is None or not rows.num_rows:
        raise _no_rows(settings)
    return rows


def _no_rows(settings: Settings) -> InputError:
    where = f" in --slice {'='.join(settings.slice)}" if settings.slice else ""
    return InputError(f"--data: no good row{where}; give a log with labels that the model reads")


def _in_slice(rows: pa.RecordBatch, settings: Settings) -> pa.RecordBatch:
    if settings.slice is None:
        return rows
    column, value = settings.slice
    return rows.filter(pc.equal(rows[column], pa.scalar(value.encode(), pa.binary())))


def _labels(rows: pa.Table, spec: LogSpec, settings: Settings) -> npt.NDArray[np.floating]:
    labels: npt.NDArray[np.floating] = rows[spec.label_columns[0]].to_numpy()
    clicks = int((labels > 0.5).sum())
    if min(clicks, len(labels) - clicks) < 2:
        where = f" of --slice {'='.join(settings.slice)}" if settings.slice else ""
        raise InputError(
            f"--data: the sample of {len(labels):,} rows{where} has {clicks:,} clicks; AUC needs two rows of each class"
        )
    return labels


def _column_pairs(codes: LogCodes, counts: PairCounts, seed: int) -> list[ColumnPair]:
    """Returns all pairs of columns, those first that are furthest above chance."""
    report = throttled_announce()
    random = np.random.default_rng(seed)
    pairs: list[ColumnPair] = []
    for first, second in counts.pairs():
        report(f"Complementarity: {len(pairs)} pairs")
        table = counts.of(first, second)
        drawn = chance_complementarity(table, CHANCE_DRAWS, random)
        bias, spread = float(drawn.mean()), float(drawn.std(ddof=1))
        low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) - bias
        value = float(complementarity(table)) - bias
        z = value / spread if spread else 0.0
        pairs.append(ColumnPair(codes.columns[first], codes.columns[second], value, (float(low), float(high)), z))
    return sorted(pairs, key=lambda pair: -pair.z)


def _permute_pairs(
    pairs: list[ColumnPair], importances: list[Importance], permuter: Permuter, count: int
) -> list[ColumnPair]:
    """Permutes the first pairs of the most important columns."""
    single = {one.columns[0]: one for one in importances[:SCREENED] if len(one.columns) == 1}
    left = count
    permuted = []
    for pair in pairs:
        if left and pair.first in single and pair.second in single:
            left -= 1
            interaction = permuter.interaction(single[pair.first], single[pair.second])
            pair = dataclasses.replace(pair, interaction=interaction)
        permuted.append(pair)
    return permuted


def _agreement(pairs: list[ColumnPair]) -> float | None:
    """Returns Spearman's correlation of the pairs' complementarity and interaction in log loss, where permuted."""
    return _correlation([(pair.complementarity, pair.interaction.log_loss.value) for pair in pairs if pair.interaction])


def _correlation(known: list[tuple[float, float]]) -> float | None:
    """Returns Spearman's correlation; None of fewer than three pairs, or where one side is constant."""
    if len(known) < 3:
        return None
    of_data, of_model = (ranks(np.array(values)) for values in zip(*known, strict=True))
    if not of_data.std() or not of_model.std():
        return None
    return float(np.corrcoef(of_data, of_model)[0, 1])


def _value_pairs(codes: LogCodes, counts: PairCounts) -> list[ValuePair]:
    """Returns the most complementary pairs of values of all pairs of columns."""
    best: list[ValuePair] = []
    for first, second in counts.pairs():
        found = value_pairs(counts.of(first, second), LEAST_ROWS)
        for place in np.argsort(-found.complementarity)[:VALUE_PAIRS]:
            best.append(
                ValuePair(
                    codes.columns[first],
                    codes.names[first][found.first[place]],
                    codes.columns[second],
                    codes.names[second][found.second[place]],
                    int(found.rows[place]),
                    float(found.complementarity[place]),
                    float(found.rate_of_first[place]),
                    float(found.rate_of_second[place]),
                    float(found.rate_of_both[place]),
                )
            )
        best = sorted(best, key=lambda pair: -pair.complementarity)[:VALUE_PAIRS]
    return best


def write_explanation(folder: pathlib.Path, name: str, value: dict[str, Any]) -> pathlib.Path:
    """Writes an explanation as JSON to a folder, which is made where it is absent; returns the file.

    Raises:
        InputError: it cannot be written there.
    """
    path = folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, value)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); choose another --output") from error
    return path
