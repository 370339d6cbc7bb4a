"""Tests whether `ctrpipe explain` finds the important columns of a log, and the pairs of columns that interact.

    python -m studies.explain [--model attention_net ...] [--seeds 5] [--rows 120000] [--folder DIR]

A log has 39 independent categorical columns of 2 to 50 values (noise columns: 2 to 1,000) with frequencies
proportional to 1 / rank. 20 columns are important: they have an effect of their own, are in one of 10 pairs, or both. A
pair interacts by the inner product of centred vectors of the two values, without an effect on a single column. The
important columns and all effects differ by seed. The models' settings were chosen on the log of another seed.

`ctrpipe run` trains on each log, and the functions of `ctrpipe explain` explain the model on the run's test rows:

- A column is in use if permuting it costs log loss with a p-value below 0.05, adjusted for 39 columns. A column is
found if it is in use, or if the log shows an interaction with another column: permutation cannot find effects that
the model has not learned.
- A pair is found if the log shows an interaction with a p-value below 0.05, adjusted for 741 pairs.
- What the model has learned of the pairs is reported as the permuted pairs whose columns need each other (the 95%
  interval lies above 0), and the number of planted pairs among the 10 strongest by attention, or by the model's learned
  strengths.

The bars: 95% of the planted columns and 90% of the planted pairs are found over all seeds, with less than 5% false
findings; and the rank correlation of complementarity and attention is above 0, with an interval over seeds.
"""

import dataclasses
import itertools
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.csv
import scipy.stats
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import folder_option
from benchmarks.harness.result_table import Cell, if_any, result_table
from ctrpipe.common import metrics
from ctrpipe.common.code_version import stage_version
from ctrpipe.common.files import write_json
from ctrpipe.common.fingerprints import fingerprint
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.transforms.generate.click_model import sigmoid

COLUMNS, IMPORTANT, PAIRS = 39, 20, 10
VALUES, NOISE_VALUES = (2, 50), (2, 1000)
VECTOR = 3  # length of a value's vector in a pair
OWN_DEVIATION, PAIR_DEVIATION, BIAS = 0.3, 0.5, -1.5  # standard deviations and bias of the logit
PERMUTED_PAIRS = 20
COLUMN_BAR, PAIR_BAR, FALSE_BAR = 0.95, 0.9, 0.05

# Near zero, a product of embeddings has no gradient.
FACTORS = {"embedding_dim": 16, "embedding_stddev": 0.1, "use_linear": True, "embedding_l2": 0.03}
MODELS: dict[str, dict[str, Any]] = {
    "attention_net": {
        **FACTORS,
        "embedding_stddev": 0.3,
        "embedding_l2": 0.0,
        "embedding_dropout": 0.3,
        "dropout": 0.3,
        "layers": 2,
        "heads": 2,
        "top_k": 5,
        "hidden_units": [64, 64],
    },
    "fm": FACTORS,
    "ffm": {**FACTORS, "embedding_dim": 4},
    "dcn_v2": {**FACTORS, "layers": 2, "hidden_units": [64]},
    "xdeepfm": {**FACTORS, "maps": [32, 32], "hidden_units": [64, 64]},
}
TRAINING = {
    "batch_size": 512,
    "epochs": 20,
    "learning_rate": 0.002,
    "monitor": "log_loss",
    "patience": 4,
    "plateau": None,
    "distribution": "one_device",
}


@dataclasses.dataclass(frozen=True)
class Truth:
    """The planted effects of a log.

    Attributes:
        values: The number of values of each column.
        own: The logit of each value, for each column number with an effect of its own.
        pairs: The vectors of both columns' values, `[values, VECTOR]`, for each pair of columns.
    """

    values: tuple[int, ...]
    own: Mapping[int, np.ndarray]
    pairs: Mapping[tuple[int, int], tuple[np.ndarray, np.ndarray]]

    @property
    def important(self) -> set[str]:
        """The names of the important columns."""
        return {name_of(column) for column in {*self.own, *itertools.chain(*self.pairs)}}

    @property
    def pair_names(self) -> set[frozenset[str]]:
        """The names of the columns of each pair."""
        return {frozenset(map(name_of, pair)) for pair in self.pairs}

    def logits(self, codes: np.ndarray) -> np.ndarray:
        """Returns the logit of each row, given codes `[N, columns]`."""
        total = np.full(len(codes), BIAS)
        for column, effect in self.own.items():
            total += effect[codes[:, column]]
        for (first, second), (of_first, of_second) in self.pairs.items():
            total += (of_first[codes[:, first]] * of_second[codes[:, second]]).sum(axis=1)
        return total


def name_of(column: int) -> str:
    """Returns a column's name."""
    return f"C{column + 1}"


def frequencies(values: int) -> np.ndarray:
    """Returns the frequency of each value, proportional to 1 / rank."""
    shares = 1 / np.arange(1, values + 1)
    return np.asarray(shares / shares.sum())


def plant(seed: int) -> Truth:
    """Returns a log's truth. Each important column is in a pair, has an effect of its own, or both."""
    random = np.random.default_rng([seed, 0])
    important = sorted(random.choice(COLUMNS, IMPORTANT, replace=False).tolist())
    possible = list(itertools.combinations(important, 2))
    pairs = [possible[place] for place in sorted(random.choice(len(possible), PAIRS, replace=False))]
    in_pairs = set(itertools.chain(*pairs))
    values = []
    for column in range(COLUMNS):
        low, high = VALUES if column in important else NOISE_VALUES
        values.append(int(np.exp(random.uniform(np.log(low), np.log(high + 1)))))
    own = {
        column: _scaled(random.normal(size=(values[column], 1)), values[column])[:, 0] * OWN_DEVIATION
        for column in important
        if column not in in_pairs or random.random() < 0.5
    }
    effects = {}
    for first, second in pairs:
        vectors = [_scaled(random.normal(size=(values[column], VECTOR)), values[column]) for column in (first, second)]
        by_value = (vectors[0] @ vectors[1].T) ** 2
        deviation = np.sqrt(frequencies(values[first]) @ by_value @ frequencies(values[second]))
        effects[first, second] = (vectors[0] * PAIR_DEVIATION / deviation, vectors[1])
    return Truth(tuple(values), own, effects)


def _scaled(vectors: np.ndarray, values: int) -> np.ndarray:
    """Returns vectors scaled to mean 0 and standard deviation 1 over rows."""
    shares = frequencies(values)
    centred = vectors - shares @ vectors
    return np.asarray(centred / np.sqrt(shares @ centred**2))


def write_log(truth: Truth, rows: int, seed: int, path: pathlib.Path) -> float | None:
    """Writes a log (TSV); returns the AUC of its true probabilities."""
    random = np.random.default_rng([seed, 1])
    codes = np.stack([random.choice(count, rows, p=frequencies(count)) for count in truth.values], axis=1)
    probabilities = sigmoid(truth.logits(codes))
    labels = (random.random(rows) < probabilities).astype(np.int8)
    columns = {name_of(column): pa.array(codes[:, column]) for column in range(COLUMNS)}
    path.parent.mkdir(parents=True, exist_ok=True)
    options = pyarrow.csv.WriteOptions(include_header=False, delimiter="\t")
    pyarrow.csv.write_csv(pa.table({"label": labels, **columns}), path, options)
    return metrics.auc(labels, probabilities)


def config_of(model: str) -> RunConfig:
    """Returns the configuration of a run, as in a YAML file."""
    return RunConfig.model_validate(
        {
            "name": f"planted_{model}",
            "data": {
                "format": "tsv",
                "columns": ["label", f"C1..C{COLUMNS}"],
                "labels": {"ctr": "label"},
                "split": {"by": "order", "validation": 0.1, "test": 0.4},
            },
            "features": [{"kind": "categorical", "columns": [name_of(column) for column in range(COLUMNS)]}],
            "model": {"name": model, **MODELS[model]},
            "training": TRAINING,
        }
    )


def judge(truth: Truth, explained: Mapping[str, Any], alpha: float) -> dict[str, Any]:
    """Returns how many planted columns and pairs an explanation finds, and how many others.

    Args:
        truth: The planted effects.
        explained: The result of `explain`.
        alpha: The significance level of p-values.
    """
    used = {one["name"] for one in explained["columns"] if one["p_value"] < alpha}
    pairs = {_pair(one) for one in explained["pairs"] if one["interplay"]["p_value"] < alpha}
    columns = used | set(itertools.chain(*pairs))
    permuted = {_pair(one): one["interaction"]["log_loss"] for one in explained["pairs"] if one["interaction"]}
    needed = {pair for pair, loss in permuted.items() if loss["interval"][0] > 0}
    strongest = {}
    for measure in ("picked", "strength"):
        known = sorted((one for one in explained["pairs"] if one[measure] is not None), key=lambda one: -one[measure])
        if known:
            strongest[measure] = sum(_pair(one) in truth.pair_names for one in known[:PAIRS])
    return {
        "auc": explained["auc"],
        "columns": _counted(columns, truth.important),
        "used_columns": _counted(used, truth.important),
        "pairs": _counted(pairs, truth.pair_names),
        "missed": sorted(truth.important - columns) + sorted("x".join(sorted(p)) for p in truth.pair_names - pairs),
        "permuted_pairs": len(permuted),
        "needed_pairs": _counted(needed, truth.pair_names),
        "planted_among_the_strongest": strongest,
        "rank_correlations": explained["rank_correlations"],
    }


def _pair(one: Mapping[str, Any]) -> frozenset[str]:
    return frozenset((one["first"], one["second"]))


def _counted(found: set[Any], planted: set[Any]) -> dict[str, int]:
    return {"planted": len(planted), "found": len(found & planted), "false": len(found - planted)}


def summary(judged: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the counts over seeds, whether they meet the bars, and the rank correlations with 95% intervals."""
    by_kind: dict[str, Any] = {}
    for kind, bar in (("columns", COLUMN_BAR), ("used_columns", None), ("pairs", PAIR_BAR), ("needed_pairs", None)):
        total = {key: sum(one[kind][key] for one in judged) for key in ("planted", "found", "false")}
        shares = {
            "share_found": total["found"] / total["planted"],
            "share_false": total["false"] / max(total["found"] + total["false"], 1),
        }
        by_kind[kind] = {**total, **shares}
        if bar is not None:
            by_kind[kind]["met"] = shares["share_found"] >= bar and shares["share_false"] < FALSE_BAR
    by_kind["rank_correlations"] = correlations = {}
    for first, second in dict.fromkeys((c["first"], c["second"]) for one in judged for c in one["rank_correlations"]):
        values = [
            c["spearman"]
            for one in judged
            for c in one["rank_correlations"]
            if (c["first"], c["second"]) == (first, second)
        ]
        correlations[f"{first} and {second}"] = {"mean": float(np.mean(values)), "interval": interval(values)}
    return by_kind


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Returns the 95% interval of the mean, by Student's t-distribution; None for a single value."""
    if len(values) < 2:
        return None
    half = scipy.stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    return float(np.mean(values) - half), float(np.mean(values) + half)


def explained_log(model: str, rows: int, sample: int, seed: int, folder: pathlib.Path) -> dict[str, Any]:
    """Returns the explanation of a model trained on a planted log; reads a stored one from the folder."""
    from ctrpipe.pipeline.explain.explain import Settings, explain
    from ctrpipe.pipeline.run.run import run
    from ctrpipe.pipeline.run.trained_model import find_model

    planted = VALUES, NOISE_VALUES, VECTOR, OWN_DEVIATION, PAIR_DEVIATION, BIAS
    place = folder / f"{model}-{seed}-{fingerprint(MODELS[model], TRAINING, rows, planted)[:8]}"
    path = place / f"explanation-{sample}-{stage_version('ctrpipe.pipeline.explain.explain')[:8]}.json"
    if not path.exists():
        announce(f"{model}, seed {seed}: generating {rows:,} rows")
        log = place / "log.tsv"
        best = write_log(plant(seed), rows, seed, log)
        run(config_of(model), [str(log)], place / "run")  # does not repeat a training run on the same rows
        explained = explain(find_model(place / "run"), [], Settings(rows=sample, pairs=PERMUTED_PAIRS, seed=seed))
        write_json(path, {**explained, "best_auc": best})
    kept: dict[str, Any] = json.loads(path.read_text())
    return kept


def table(report: Mapping[str, Any]) -> Table:
    rows: list[dict[str, Any] | None] = []
    for model, result in report["models"].items():
        summary = result["summary"]
        for kind in ("columns", "used_columns", "pairs", "needed_pairs"):
            bar = "" if "met" not in summary[kind] else "met" if summary[kind]["met"] else "not met"
            rows.append({"model": model, "what": kind.replace("_", " "), "bar": bar, **summary[kind]})
        for names, one in summary["rank_correlations"].items():
            low, high = one["interval"] or (float("nan"), float("nan"))
            about = {"model": model, "what": f"ranks by {names}", "bar": f"{low:+.2f} .. {high:+.2f}"}
            rows.append({**about, "mean": one["mean"]})
        rows.append(None)
    columns: dict[str, Cell] = {
        "model": "{model}",
        "what": "{what}",
        **{name: if_any(name, f"{{{name}}}") for name in ("planted", "found", "false")},
        "share found": lambda one: "{share_found:.1%}".format_map(one) if "mean" not in one else f"{one['mean']:+.2f}",
        "share false": if_any("share_false", "{share_false:.1%}"),
        "bar": "{bar}",
    }
    return result_table("What was planted and is found", columns, rows)


@Benchmark("studies.explain", table)
@click.option("--model", "names", multiple=True, type=click.Choice(list(MODELS)), default=("dcn_v2", "attention_net"))
@click.option("--seeds", type=click.IntRange(1), default=5, help="Logs, each with its own truth.")
@click.option("--rows", type=click.IntRange(2000), default=120_000, help="Rows of each log, half of them for training.")
@click.option("--sample", type=click.IntRange(100), default=20_000, help="Test rows for permutation and attention.")
@folder_option("explain")
def main(report: Report, names: Sequence[str], seeds: int, rows: int, sample: int, folder: pathlib.Path) -> None:
    """Count how many planted columns and pairs `ctrpipe explain` finds, and how many false ones.

    Prints a table, writes JSON, and prints the JSON on the last line. Training runs stored in --folder are not
    repeated.
    """
    load_tensorflow()
    from ctrpipe.pipeline.explain.importance import ALPHA

    report.add_load()
    report |= {"rows": rows, "sample": sample, "training": TRAINING, "models": {}}
    for name in names:
        judged = []
        for seed in range(seeds):
            explained = explained_log(name, rows, sample, seed, folder)
            judged.append({**judge(plant(seed), explained, ALPHA), "best_auc": explained["best_auc"]})
            one = judged[-1]
            announce(f"{name}, seed {seed}: columns {one['columns']}, pairs {one['pairs']}, missed {one['missed']}")
        report["models"][name] = {"settings": MODELS[name], "seeds": judged, "summary": summary(judged)}
        report.write()


if __name__ == "__main__":
    main()
