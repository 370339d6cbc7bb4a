"""`ctrpipe explain`: the columns that a model uses, the interactions in its log, the explanation of a row."""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.errors import InputError
from ctrpipe.common.files import write_json
from ctrpipe.common.near import did_you_mean
from ctrpipe.common.progress import announce, throttled_announce
from ctrpipe.common.store_names import with_urls
from ctrpipe.models.base.saved import load_model, saved_class
from ctrpipe.models.explain.pair_counts import PairCounts
from ctrpipe.models.layers.boosted import Boosted
from ctrpipe.pipeline.explain.attention import AttentionLayer, PickedRows, attention_of_rows, picked_pairs
from ctrpipe.pipeline.explain.explained_row import RowExplained
from ctrpipe.pipeline.explain.importance import Importance, Permuter, Score, adjusted, groups_of
from ctrpipe.pipeline.explain.pairs import (
    column_pairs,
    pairs_of_values,
    permute_pairs,
    rank_correlations,
    unused_columns,
    with_model,
)
from ctrpipe.pipeline.explain.prune import config_of_run, prune
from ctrpipe.pipeline.explain.rows import gradients_of_row, shapley_of_row
from ctrpipe.pipeline.explain.strengths import learned_strengths
from ctrpipe.pipeline.explain.value_codes import LogCodes
from ctrpipe.pipeline.explain.words import WordsOfQuery, attended_words
from ctrpipe.pipeline.run.model_rows import read_row, read_rows
from ctrpipe.pipeline.run.trained_model import TrainedModel
from ctrpipe.serving.rows import Scorer
from ctrpipe.transforms.features.slots import column_of_slot
from ctrpipe.transforms.log.row_sample import RowSample
from ctrpipe.transforms.log.spec import LogSpec

ATTENDED_ROWS = 10_000  # rows of the sample over which attention is averaged
TEXT_ROWS = 1_000  # rows of the sample whose texts are encoded for the attention over words
CODED_ROWS = 50_000  # rows drawn from the log to choose the values that get a code
STORED = 5  # explained rows of each kind: with the most certain and the most wrong prediction
STORED_ORDERS = 50  # orders of the columns for the Shapley values of such a row
GRADIENTS, SHAPLEY, BOTH = METHODS = ("gradients", "shapley", "both")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of an explanation.

    Attributes:
        rows: The maximum number of rows of the sample that the model scores.
        repeats: How often each column is permuted.
        pairs: How many pairs of columns are permuted.
        groups: Named groups of columns.
        slice: A column and its value, to restrict the rows. None for all rows.
        prune: The maximum loss of AUC of a smaller configuration. None for no such configuration.
        seed: Seed of all random draws.
    """

    rows: int = 20_000
    repeats: int = 2
    pairs: int = 10
    groups: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    slice: tuple[str, str] | None = None
    prune: float | None = None
    seed: int = 0


def explain(source: TrainedModel, data: Sequence[str], settings: Settings) -> dict[str, Any]:
    """Returns the importance of the columns and the interactions in the log.

    A sample of the log's rows is drawn, pairs of values are counted over all rows, and the model scores the sample.

    Args:
        source: The model.
        data: Files and globs of a log. Empty for the run's test rows.
        settings: The settings.

    Raises:
        InputError: a column is unknown, the model cannot read the log or is code that is not trusted, the sample has
            too few rows of a class, or, with `prune`, the run's configuration is not known or every column costs more
            than the limit.
    """
    config = None if settings.prune is None else config_of_run(source)
    if (kept := source.kept()) is not None:
        saved_class(kept, source.trust)  # an error comes before the work
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
        importances = adjusted(importances)
        pruned = None
        if config and settings.prune is not None:
            anew = Permuter(score_with(scorer), rows, labels, settings.repeats, settings.seed + 1)
            pruned = prune(config, importances, permuter, anew.importance, settings.prune)
        pairs = permute_pairs(column_pairs(codes, counts, settings.seed), importances, permuter, settings.pairs)
        attended = rows.slice(0, ATTENDED_ROWS)
        attention, picked, strengths, words = _learned(source, scorer, attended)
        pairs = with_model(pairs, picked_pairs(picked) if picked else {}, strengths)
        batch = attended.combine_chunks().to_batches()[0]
        values, curve = pairs_of_values(codes, counts, codes.codes(batch), picked)
        stored = _stored_rows(source, scorer, rows, labels, groups, settings)
    finally:
        scorer.close()
    return {
        "model": with_urls(str(source.version)),
        "run": with_urls(str(source.run)) if source.run is not None else None,
        "task": task,
        "rows": rows.num_rows,
        "slice": "=".join(settings.slice) if settings.slice else None,
        "auc": permuter.auc,
        "log_loss": permuter.log_loss,
        "scorings": permuter.scorings,
        "counted_rows": counts.rows,
        "columns": [dataclasses.asdict(one) for one in importances],
        "unused": unused_columns(pairs, importances),
        "pairs": [dataclasses.asdict(one) for one in pairs],
        "pruned": dataclasses.asdict(pruned) if pruned else None,
        "rank_correlations": rank_correlations(pairs),
        "attention": [dataclasses.asdict(layer) for layer in attention],
        "words": [dataclasses.asdict(query) for query in words],
        "values": [dataclasses.asdict(one) for one in values],
        "picked_by_complementarity": [dataclasses.asdict(point) for point in curve],
        "stored_rows": stored,
    }


def _stored_rows(
    source: TrainedModel,
    scorer: Scorer,
    rows: pa.Table,
    labels: npt.NDArray[np.floating],
    groups: dict[str, list[str]],
    settings: Settings,
) -> list[dict[str, Any]]:
    """Explains the sample's rows with the most certain and the most wrong predictions."""
    probabilities = score_with(scorer)(rows)
    wrong = np.abs(probabilities - labels)
    order = np.argsort(wrong, kind="stable")
    chosen = [("most certain", place) for place in order[:STORED]] + [
        ("most wrong", place) for place in order[::-1][: min(STORED, len(order) - STORED)]
    ]
    announce(f"Explaining {len(chosen)} rows")
    by_gradients = None if _no_gradients(source, scorer) else _by_gradients(source, scorer, groups)
    stored = []
    for why, place in chosen:
        row = rows.slice(place, 1)
        if by_gradients:
            one = by_gradients(row, rows)
        else:
            random = np.random.default_rng(settings.seed)
            one = shapley_of_row(score_with(scorer), row, rows, groups, STORED_ORDERS, random)
        one = one.with_moments(scorer.spec.time_formats)
        stored.append({"why": why, "label": float(labels[place]), **dataclasses.asdict(one)})
    return stored


def explain_line(
    source: TrainedModel,
    line: str,
    data: Sequence[str],
    settings: Settings,
    baseline: str,
    orders: int,
    method: str | None,
) -> list[RowExplained]:
    """Returns the explanation of one row's probability by each requested method.

    Args:
        source: The model.
        line: FILE:LINE.
        data: As in `explain`. Read only if the baseline is "average".
        settings: The settings. `rows` limits the sample that the row is compared with.
        baseline: What the row is compared with: "average" for rows of the log, "missing" for a row of missing values,
            or FILE:LINE for another row.
        orders: How many orders of the columns are drawn for Shapley values.
        method: One of METHODS. None: gradients if the model has them, otherwise Shapley values.

    Raises:
        InputError: as in `explain`, the line is not a row of the model's log, or the model has no gradients.
    """
    scorer = Scorer(source.version)
    try:
        groups = check_groups(scorer.spec, settings)
        row = pa.Table.from_batches([read_row(line, scorer.spec, scorer.own)])
        others = None
        if baseline == "average":
            others = _read_sample(source, data, scorer.spec, settings)
        elif baseline != "missing":
            others = pa.Table.from_batches([read_row(baseline, scorer.spec, scorer.own, "--baseline")])
        explained = []
        reason = None if method == SHAPLEY else _no_gradients(source, scorer)
        if reason and method is not None:
            raise InputError(f"--method {method}: {reason}; take --method {SHAPLEY}")
        if method != SHAPLEY and not reason:
            explained.append(_by_gradients(source, scorer, groups)(row, others))
        if method in (SHAPLEY, BOTH) or reason:
            random = np.random.default_rng(settings.seed)
            explained.append(shapley_of_row(score_with(scorer), row, others, groups, orders, random))
        return [one.with_moments(scorer.spec.time_formats) for one in explained]
    finally:
        scorer.close()


def _no_gradients(source: TrainedModel, scorer: Scorer) -> str | None:
    """Returns the reason why gradients cannot explain a model, or None if they can."""
    kept = source.kept()
    if kept is None:
        return f"{source.version}: its Keras model was not kept next to its run"
    if not scorer.packs:
        return f"{source.version}: it has no signature transform_raw"
    if issubclass(saved_class(kept, source.trust), Boosted):
        return "boosted trees have no gradients"
    return None


def _learned(
    source: TrainedModel, scorer: Scorer, rows: pa.Table
) -> tuple[list[AttentionLayer], PickedRows | None, dict[frozenset[str], float], list[WordsOfQuery]]:
    """Returns the model's attention on rows, the tokens it picks there, its pair strengths, and the attended words.

    Uses the Keras model. A part that the model does not have is [], None or {}. Without a Keras model, all parts are
    empty.
    """
    kept = source.kept()
    if kept is None or not scorer.packs:
        return [], None, {}, []
    kind = saved_class(kept, source.trust)
    attends, has_strengths = hasattr(kind, "attention_maps"), hasattr(kind, "pair_strengths")
    looks_at_text = hasattr(kind, "text_attention")
    if not (attends or has_strengths or looks_at_text):
        return [], None, {}, []
    model = load_model(kept, source.trust)
    if looks_at_text:
        rows = rows.slice(0, TEXT_ROWS)
    batches = list(scorer.packed(with_position(rows, scorer.spec, source.position())))
    layers, picked = attention_of_rows(model, batches) if attends else ([], None)
    strengths = learned_strengths(model, batches) if has_strengths else {}
    words = attended_words(model, batches, rows, scorer.spec.text) if looks_at_text and scorer.spec.text else []
    return layers, picked, strengths, words


def _by_gradients(
    source: TrainedModel, scorer: Scorer, groups: dict[str, list[str]]
) -> Callable[[pa.Table, pa.Table | None], RowExplained]:
    """Returns a function that explains a row against a background, as in `gradients_of_row`."""
    from ctrpipe.pipeline.explain.gradients import (
        RowGradients,  # lazy: Keras takes 4 s, and other explanations do not need it
    )

    kept = source.kept()
    assert kept is not None  # checked by _no_gradients
    position = source.position()

    def pack(rows: pa.Table) -> dict[str, npt.NDArray[Any]]:
        placed = with_position(rows, scorer.spec, position)
        batches = list(scorer.packed(placed))
        return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}

    model = RowGradients(load_model(kept, source.trust), column_of_slot(scorer.spec))
    served = score_with(scorer)

    def explained(row: pa.Table, others: pa.Table | None) -> RowExplained:
        # The served model may have a calibration. The Keras model has none.
        attributed = gradients_of_row(model, pack, row, others, groups, scorer.spec)
        return dataclasses.replace(attributed, probability=float(served(row)[0]))

    return explained


def with_position(rows: pa.Table, spec: LogSpec, position: Mapping[str, str | float]) -> pa.Table:
    """Returns the rows with the position that the served model uses for every request."""
    for name, value in position.items():
        kind, plain_value = (pa.float32(), float(value)) if name in spec.numeric_columns else (pa.binary(), str(value))
        column = pa.array([plain_value] * rows.num_rows, pa.float32() if kind == pa.float32() else pa.string())
        rows = rows.set_column(rows.column_names.index(name), name, column.cast(kind))
    return rows


def score_with(scorer: Scorer) -> Score:
    """Returns a function from rows to the model's probabilities for the primary task."""
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
            raise InputError(
                f"--group {name}: {unknown[0]} is no column of the model; it has {', '.join(known)}"
                f"{did_you_mean(unknown[0], known)}"
            )
    grouped = [column for members in settings.groups.values() for column in members]
    if repeated := [column for column in grouped if grouped.count(column) > 1]:
        raise InputError(f"--group: {repeated[0]} is in two groups; a column can be in one")
    if settings.slice and settings.slice[0] not in spec.text_columns:
        raise InputError(
            f"--slice {settings.slice[0]}: no column of text of the model; it has {', '.join(spec.text_columns)}"
            f"{did_you_mean(settings.slice[0], spec.text_columns)}"
        )
    return groups_of(known, spec.text.columns if spec.text else (), settings.groups)


def _read(
    source: TrainedModel, data: Sequence[str], spec: LogSpec, settings: Settings
) -> tuple[pa.Table, LogCodes, PairCounts]:
    """Returns a sample of the rows, the codes of their values, and the counts of all rows by pairs of columns.

    The log is read twice: first for the sample that the codes are learned from, then to count. A log may be sorted,
    so its first rows would not be representative.
    """
    sample = RowSample(max(settings.rows, CODED_ROWS), np.random.default_rng(settings.seed))
    for batch in read_rows(source, data, spec):
        sample.add(_in_slice(batch, settings, spec.label_columns[0]))
    learned = sample.table()
    if learned is None or not learned.num_rows:
        raise _no_rows(settings)
    codes = LogCodes(learned, spec)
    counts, clicks = PairCounts([len(names) for names in codes.names]), np.random.default_rng(settings.seed)
    for batch in read_rows(source, data, spec):
        rows = _in_slice(batch, settings, spec.label_columns[0])
        labels = rows[spec.label_columns[0]].to_numpy(zero_copy_only=False)
        counts.add(codes.codes(rows), clicks.random(len(labels)) < labels)  # a rate is clicked as often as it says
    kept = sample.table(settings.rows)
    assert kept is not None
    return kept, codes, counts


def _read_sample(source: TrainedModel, data: Sequence[str], spec: LogSpec, settings: Settings) -> pa.Table:
    sample = RowSample(settings.rows, np.random.default_rng(settings.seed))
    for batch in read_rows(source, data, spec):
        sample.add(_in_slice(batch, settings, spec.label_columns[0]))
    rows = sample.table()
    if rows is None or not rows.num_rows:
        raise _no_rows(settings)
    return rows


def _no_rows(settings: Settings) -> InputError:
    where = f" in --slice {'='.join(settings.slice)}" if settings.slice else ""
    return InputError(f"--data: no good row{where}; give a log with labels that the model reads")


def _in_slice(rows: pa.RecordBatch, settings: Settings, label: str) -> pa.RecordBatch:
    """Returns the rows of the slice, if there is one, that have a label."""
    if rows[label].null_count:
        rows = rows.filter(rows[label].is_valid())
    if settings.slice is None:
        return rows
    column, value = settings.slice
    return rows.filter(pc.equal(rows[column], pa.scalar(value.encode(), pa.binary())))


def _labels(rows: pa.Table, spec: LogSpec, settings: Settings) -> npt.NDArray[np.floating]:
    labels: npt.NDArray[np.floating] = rows[spec.label_columns[0]].to_numpy()
    clicks, others = int((labels > 0).sum()), int((labels < 1).sum())
    if min(clicks, others) < 2:
        where = f" of --slice {'='.join(settings.slice)}" if settings.slice else ""
        raise InputError(
            f"--data: the sample of {len(labels):,} rows{where} has {clicks:,} clicks; AUC needs two rows of each class"
        )
    return labels


def write_explanation(folder: pathlib.Path, name: str, value: dict[str, Any]) -> pathlib.Path:
    """Writes an explanation as JSON to a folder, and returns the file. Makes the folder if it is missing.

    Raises:
        InputError: the file cannot be written.
    """
    path = folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, value)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); choose another --output") from error
    return path
