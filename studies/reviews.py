"""Trains models with a text on real reviews of clothes; the label is whether the review recommends the item.

    python -m studies.reviews --data REVIEWS.parquet --encoder FOLDER [--models bert4ctr] [--seeds 3] [--output FOLDER]

The table of reviews (Parquet) has the columns Clothing ID, Age, Title, Review Text, Recommended IND, Positive Feedback
Count, Division Name, Department Name and Class Name; its last fifth is the test set. The models start from a
HuggingFace checkpoint of BERT. Every (model, seed) is a training run by the trainer of a run, stored in the output
folder: the same command resumes an interrupted training run from its last checkpoint. Settings were chosen on the
validation rows (the tenth before the test rows).

text_only sees every text twice. A model that starts from a fine-tuned encoder sees each text once in that stage and
once with the features: after two epochs the encoder has memorised the training rows, and layers trained afterwards on
the same rows rely on it too much (a log loss of 0.25 to 0.28 instead of 0.19).

The command is no `Benchmark`: its --output is a folder that training runs share.

References on the same rows: scikit-learn's logistic regression on TF-IDF of words and word pairs, and on the features
alone, with C chosen on the validation rows.
"""

import dataclasses
import json
import pathlib
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click
import numpy as np
import pyarrow.parquet
from rich.table import Table

from benchmarks.harness.command import chosen_names, command, finish, machine
from benchmarks.harness.result_table import Cell, if_any, result_table
from benchmarks.harness.reviews import IDS, LABEL, NUMBERS, SPLIT, TEXTS, TRAININGS, config_of
from ctrpipe.common import metrics
from ctrpipe.common.errors import InputError
from ctrpipe.common.files import write_json
from ctrpipe.common.fingerprints import fingerprint
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.output_folder import check_output, one_run_at_a_time
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.compare.shards import shards
from ctrpipe.pipeline.compare.sides import compare_sides, side
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows, read_scored, write_scored
from ctrpipe.pipeline.run.run import transform
from ctrpipe.pipeline.training.text_encoder import with_encoder

MAIN = "bert4ctr"
C_VALUES = (1.0, 4.0, 10.0, 30.0)


@dataclasses.dataclass(frozen=True)
class Task:
    """One training run: a model, a seed and a configuration."""

    model: str
    seed: int
    config: RunConfig

    @property
    def name(self) -> str:
        """A name that is equal for equal training runs on the same data."""
        config = self.config
        return f"{self.model}-{self.seed}-{fingerprint(config.log_spec, config.model, config.training)[:8]}"


def train_missing(tasks: Sequence[Task], output: pathlib.Path) -> None:
    """Trains the tasks without a result; a first stage shared by several models is trained once."""
    check_output(output)
    (output / "results").mkdir(exist_ok=True)
    missing = [task for task in tasks if not _result(output, task).exists()]
    if not missing:
        return
    with one_run_at_a_time(output):
        log = transform(missing[0].config, missing[0].config.data.paths, output)
        for done, task in enumerate(missing, 1):
            result, scored = train_one(task, log, output / "work")
            write_scored(_result(output, task).with_suffix(".parquet"), scored)
            write_json(_result(output, task), result)
            announce(f"[{done}/{len(missing)}] {task.model}, seed {task.seed}: test AUC {result['test']['auc']:.4f}")


def train_one(task: Task, log: Any, work: pathlib.Path) -> tuple[dict[str, Any], ScoredRows]:
    """Trains or resumes a task; returns its metrics and the scored test rows.

    `seconds` and `cpu_seconds` exclude the time before an interrupt.
    """
    # These import TensorFlow: 4 s of CPU time, which --help and option errors should not pay.
    from ctrpipe.pipeline.training.data import packed_batches, prediction_rows
    from ctrpipe.pipeline.training.job import TrainingJob
    from ctrpipe.pipeline.training.train import train

    config, folder = task.config, work / f"{task.model}-{task.seed}"
    started, cpu = time.monotonic(), time.process_time()

    def tell(numbers: dict[str, Any]) -> None:
        auc, loss = numbers["validation_auc"], numbers["train_loss"]
        announce(f"{task.name}: {numbers['model']}, {numbers['examples']:,} examples: loss {loss:.4f}, AUC {auc:.4f}")

    model = with_encoder(config.model, config.text)
    rows = log.feature_map, log.train, log.validation
    job = TrainingJob(model, config.training, *rows, config.seed, str(work / "stages"))
    result = train(job, folder, tell)
    seconds, cpu = time.monotonic() - started, time.process_time() - cpu
    test = packed_batches(log.test, log.feature_map, prediction_rows(log.feature_map))
    labels, probabilities = (values[:, 0] for values in result.learner.predict(test))
    summary = {
        "model": task.model,
        "seed": task.seed,
        "training": config.training.model_dump(mode="json"),
        "test": metrics.summarise(labels, probabilities),
        "history": result.history,
        "seconds": seconds,
        "cpu_seconds": cpu,
    }
    rows = log.inputs.data_fingerprint
    return summary, ScoredRows(rows, {"recommended": labels}, {"recommended": probabilities})


def _result(output: pathlib.Path, task: Task) -> pathlib.Path:
    return output / "results" / f"{task.name}.json"


def references(data: pathlib.Path) -> dict[str, np.ndarray]:
    """Returns scikit-learn's test predictions by name of the reference model."""
    # 1.0 s of CPU time, which --help and option errors should not pay.
    from sklearn.compose import ColumnTransformer
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    table = pyarrow.parquet.read_table(data).to_pandas()
    words = table[TEXTS[0]].fillna("") + " " + table[TEXTS[1]].fillna("")
    ids = [(column, OneHotEncoder(handle_unknown="ignore", min_frequency=2), [column]) for column in IDS]
    features = ColumnTransformer([*ids, ("numbers", StandardScaler(), list(NUMBERS))])
    sides = {
        "TF-IDF of words and pairs, LR": (TfidfVectorizer(ngram_range=(1, 2)), words),
        "features, LR": (features, table[[*IDS, *NUMBERS]]),
    }
    return {name: _regression(encoder, rows, table[LABEL].to_numpy()) for name, (encoder, rows) in sides.items()}


def _regression(encoder: Any, rows: Any, labels: np.ndarray) -> np.ndarray:
    """Returns the test predictions of a regression on all other rows, with the best C on the validation rows."""
    from sklearn.linear_model import LogisticRegression  # see references

    train, test = (round(len(labels) * share) for share in (1 - SPLIT["validation"] - SPLIT["test"], 1 - SPLIT["test"]))

    def predict(fitted_on: int, to: int, c: float) -> np.ndarray:
        known, asked = encoder.fit_transform(rows[:fitted_on]), encoder.transform(rows[fitted_on:to])
        return LogisticRegression(C=c, max_iter=2000).fit(known, labels[:fitted_on]).predict_proba(asked)[:, 1]

    best = max(C_VALUES, key=lambda c: metrics.auc(labels[train:test], predict(train, test, c)) or 0.0)
    return predict(test, len(labels), best)


def compare(tasks: Sequence[Task], output: pathlib.Path, beside: dict[str, np.ndarray]) -> dict[str, Any]:
    """Returns each model's results over the seeds, and MAIN's lead over it with its interval over rows and seeds.

    The models in `beside` are deterministic and count as two training runs with the same result.
    """
    scored: dict[str, list[np.ndarray]] = {}
    runs: dict[str, list[dict[str, Any]]] = {}
    labels = np.empty(0)
    for task in tasks:
        scored_rows = read_scored(_result(output, task).with_suffix(".parquet"))
        [labels], [probabilities] = scored_rows.labels.values(), scored_rows.probabilities.values()
        scored.setdefault(task.model, []).append(probabilities)
        runs.setdefault(task.model, []).append(json.loads(_result(output, task).read_text()))
    scored |= {name: [probabilities] for name, probabilities in beside.items()}
    shard = shards(len(labels))
    sides = {name: side(labels, each * 2 if name in beside else each, shard) for name, each in scored.items()}
    models: dict[str, Any] = {}
    for name, each in scored.items():
        values = [metrics.summarise(labels, probabilities) for probabilities in each]
        models[name] = {"test": values, "runs": runs.get(name, [])}
        if MAIN in scored and name != MAIN:
            models[name]["behind"] = compare_sides(sides[name], sides[MAIN], "auc").to_json()
    return models


def table(models: Mapping[str, Any]) -> Table:
    def test_mean(key: str) -> Cell:
        return lambda one: f"{statistics.mean(test[key] for test in one['test']):.4f}"

    def auc(one: Mapping[str, Any]) -> str:
        aucs = [test["auc"] for test in one["test"]]
        return f"{statistics.mean(aucs):.4f}" + (f" ({min(aucs):.4f} .. {max(aucs):.4f})" if len(aucs) > 1 else "")

    def cpu_seconds(one: Mapping[str, Any]) -> str:
        return f"{statistics.mean(run['cpu_seconds'] for run in one['runs']):,.0f}" if one["runs"] else ""

    def over(one: Mapping[str, Any]) -> str:
        behind = one.get("behind")
        return "" if not behind else "rows, one seed" if behind["seeds_error"] is None else "rows and seeds"

    columns: dict[str, Cell] = {
        "model": "{model}",
        "seeds": lambda one: f"{len(one['test'])}",
        "AUC": auc,
        "RIG": test_mean("rig"),
        "log loss": test_mean("log_loss"),
        f"{MAIN} ahead": if_any("behind", "{behind[difference]:+.4f}"),
        "95%": if_any("behind", "{behind[interval][0]:+.4f} .. {behind[interval][1]:+.4f}"),
        "over": over,
        "CPU s": cpu_seconds,
    }
    rows = [{"model": name, **results} for name, results in models.items()]
    return result_table(f"{rows[0]['test'][0]['examples']:,} test rows, mean (lowest .. highest)", columns, rows)


def chosen_tasks(models: str, seeds: int, data: pathlib.Path, encoder: pathlib.Path) -> list[Task]:
    """Returns the training runs, seed by seed, in the order in which models start from each other.

    Raises:
        InputError: A model does not exist, or the data or the encoder's folder is missing.
    """
    names = chosen_names("--models", models, TRAININGS)
    if not data.is_file():
        raise InputError(f"--data {data}: no such file; give the table of reviews (Parquet)")
    chosen = [name for name in TRAININGS if name in names]
    return [Task(name, seed, config_of(name, seed, data, encoder)) for seed in range(1, seeds + 1) for name in chosen]


@command("studies.reviews")
@click.option("--data", type=click.Path(path_type=pathlib.Path), required=True, help="The table of reviews (Parquet).")
@click.option("--encoder", type=click.Path(path_type=pathlib.Path), required=True, help="Folder of a BERT checkpoint.")
@click.option("--models", default=",".join(TRAININGS), help="Models to train, separated by commas.")
@click.option("--seeds", type=click.IntRange(1), default=3, help="Training runs of each model.")
@click.option("--threads", type=click.IntRange(1), help="Threads of TensorFlow. Default: one per core.")
@click.option(
    "--output", type=click.Path(path_type=pathlib.Path), default="runs/benchmarks/reviews", help="The result folder."
)
def main(
    data: pathlib.Path, encoder: pathlib.Path, models: str, seeds: int, threads: int | None, output: pathlib.Path
) -> None:
    """Compare BERT4CTR with its text alone, its features alone, and scikit-learn, on real reviews.

    Prints a table, writes OUTPUT/reviews.json, and prints the JSON on the last line. After an interrupt the same
    command resumes.
    """
    tasks = chosen_tasks(models, seeds, data, encoder)
    load_tensorflow()
    if threads:
        import tensorflow as tf  # see train_one

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    train_missing(tasks, output)
    results = compare(tasks, output, references(data))
    finish({"benchmark": "reviews", "machine": machine(), "models": results}, output / "reviews.json", table(results))


if __name__ == "__main__":
    main()
