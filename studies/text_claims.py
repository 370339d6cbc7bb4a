"""Tests claims of BERT4CTR's paper on generated logs in which a text and features do or do not interact.

    python -m studies.text_claims [--interplay 0 --interplay 1] [--seeds 5] [--lines 40000] [--folder DIR]

`ctrpipe generate --format kddcup2012 --click-rate 0.3` writes such logs. With --interplay 0 the effects of title
and user on the logit are additive, and BERT4CTR should gain nothing over the best of the other models. With 1 each word
of the title also matters to users of one age, and BERT4CTR should gain. A log consists of several generated logs that
share queries, titles and words, so each word occurs often.

All models have the same rows, features, encoder, batches and learning rate, and FIRST + EPOCHS epochs on a text in all
stages together; the weights with the best validation AUC are kept. BERT4CTR is compared with each other model over rows
and seeds, as in `ctrpipe compare`. A claimed gain holds if the 95% interval lies above 0. A claim of no gain, over the
best model on the validation rows, holds if the interval lies below MARGIN.

The training cost is the time of one epoch over the rows in each stage (BERT4CTR, section 4.1.4), the inference cost the
time of one prediction, both measured in turns on this machine. Training runs stored in --folder are not repeated.
"""

import dataclasses
import json
import pathlib
import shutil
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import folder_option
from benchmarks.harness.result_table import Cell, if_any, result_table
from benchmarks.harness.verdicts import Said, verdict
from ctrpipe.common.code_version import stage_version
from ctrpipe.common.errors import InputError
from ctrpipe.common.files import write_bytes, write_json
from ctrpipe.common.fingerprints import fingerprint
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.processes import Workers
from ctrpipe.common.progress import announce
from ctrpipe.models.base.registry import model_class
from ctrpipe.pipeline.compare.sides import compare_sides
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.run.prepared import join
from ctrpipe.pipeline.sweep.plan import Costs, Point, SweepPlan
from ctrpipe.pipeline.sweep.summary import sides
from ctrpipe.transforms.generate import TextClickModel, generate_kddcup2012
from ctrpipe.transforms.kddcup2012 import Options

MAIN = "BERT4CTR"
MARGIN = 0.005  # of AUC: a smaller gain counts as none
CLICK_RATE = 0.3
RAW = "raw"  # folder of the generated log
GENERATOR = "ctrpipe.transforms.generate.kddcup2012"
# Number of lines for which a log's queries, titles and words are generated. Several such logs with the same queries,
# titles and words are joined to one: each word occurs often enough for a model with random initial weights.
WORLD = 2_000
# Many test rows: a prediction costs a fraction of a training row.
FIRST_SEED = 1_000  # of the generated logs; the settings were chosen on other seeds
PARTS = Options(test=0.5, validation=0.1)
FIRST, EPOCHS = 2, 10  # epochs of a first stage, and of the stage after it

ENCODER = {"encoder_layers": 1, "encoder_width": 32, "encoder_heads": 2, "encoder_ffn": 64, "encoder_positions": 128}
# Near zero, a product of a feature's vector and a word's has no gradient.
VECTORS = {"embedding_dim": 16, "embedding_stddev": 0.1, "hidden_units": [64]}
TOKEN = {**VECTORS, "token_dim": 32}
MODELS: dict[str, dict[str, Any]] = {
    "LR": {"name": "lr", "linear_rate": 20.0},
    "MLP": {"name": "features_only", **TOKEN},
    "TextOnly": {"name": "text_only", **ENCODER},
    "NumBERT": {"name": "numbert", **ENCODER},
    "Cascading Wide & Deep": {"name": "cascading_wide_deep", **ENCODER, **VECTORS},
    "Cascading DeepFM": {"name": "cascading_deepfm", **ENCODER, **VECTORS},
    "Cascading NN + GBDT": {"name": "cascading_nn_gbdt", **ENCODER, **VECTORS},
    "Shallow Interaction-1": {"name": "shallow_interaction_1", **ENCODER, **TOKEN},
    "Shallow Interaction-N": {"name": "shallow_interaction_n", "token_ffn": 64, **ENCODER, **TOKEN},
    MAIN: {"name": "bert4ctr", "token_ffn": 64, "attention_dim": 16, **ENCODER, **TOKEN},
}
TRAINING = {
    "batch_size": 256,
    "learning_rate": 0.002,
    "monitor": "auc",
    "patience": FIRST + EPOCHS,  # interactions of text and features are learned after their separate effects
    "plateau": None,
    "start_at_base_rate": True,
    "bucket_by_length": True,
    "distribution": "one_device",
}


def config_of(name: str, epochs: int) -> RunConfig:
    """Returns a model's configuration, as in a YAML file, for logs of `ctrpipe prepare kddcup2012`.

    Ids and histories of texts are left out: a model without the text must know nothing of its words. The ad is
    included, because its topic and users' groups interact and features alone can learn this.

    Args:
        name: One of MODELS.
        epochs: Epochs after a first stage of FIRST epochs.
    """
    model = MODELS[name]
    first = model_class(model["name"]).pretraining
    return RunConfig.model_validate(
        {
            "name": "text_claims",
            "data": {
                "format": "parquet",
                "labels": {"ctr": "click"},
                "split": {
                    "by": "time",
                    "column": "part",
                    "validation_from": "2_validation",
                    "test_from": "3_test",
                    "compare_as": "text",
                },
            },
            "features": [
                {
                    "kind": "text",
                    "columns": ["query_tokens", "ad_tokens"],
                    "length": 24,
                    "tokens": "vocabulary",
                    "separator": "|",
                    "top_k": 300_000,
                },
                {
                    "kind": "categorical",
                    "columns": ["ad", "gender", "age", "depth"],
                    "min_count": 2,
                    "missing_rate": 0.05,
                },
                {
                    "kind": "numeric",
                    "columns": ["ctr_ad", "ctr_user", "query_length", "title_length"],
                    "transform": "min_max",
                    "buckets": 101,
                },
                {"kind": "categorical", "columns": ["position"], "role": "position"},
            ],
            "model": model,
            "training": {
                **TRAINING,
                "epochs": epochs if first else FIRST + epochs,
                "stages": {stage: {"epochs": FIRST} for stage in first},
            },
        }
    )


def plan_of(names: Sequence[str], seeds: int, epochs: int) -> SweepPlan:
    """Returns the sweep over the models."""
    points = tuple(Point(name, name, {}, {}, config_of(name, epochs)) for name in names)
    base = points[0].config.model_copy(update={"raw_numbers": True})  # NumBERT reads them
    costs = Costs(batch_size=TRAINING["batch_size"], batches=1)
    return SweepPlan("text_claims", base, points, seeds, latency=False, reference=None, costs=costs)


def make_log(interplay: float, lines: int, folder: pathlib.Path) -> tuple[str, dict[str, Any]]:
    """Generates and joins a log unless the folder contains it; returns its glob and its description."""
    about = folder / "generated.json"
    if not about.exists():
        announce(f"Generating {lines:,} lines with an interplay of {interplay:g}")
        write_json(about, {"interplay": interplay, "lines": lines, "best_auc": _generate(interplay, lines, folder)})
    prepared = join(folder / RAW, folder / "prepared", PARTS, Workers())
    return prepared.log, {**json.loads(about.read_text()), "rows": prepared.rows, "clicks": prepared.clicks}


def _generate(interplay: float, lines: int, folder: pathlib.Path) -> float:
    """Writes logs with the same queries, titles and words as one log; returns the mean AUC of true probabilities."""
    truth = TextClickModel(interplay=interplay, base_rate=CLICK_RATE)
    logs = [
        generate_kddcup2012(WORLD, seed, folder / f"{RAW}-{seed}", click_model=truth)
        for seed in range(FIRST_SEED, FIRST_SEED + lines // WORLD)
    ]
    shutil.copytree(logs[0].path.parent, folder / RAW, dirs_exist_ok=True)
    write_bytes(folder / RAW / logs[0].path.name, b"".join(log.path.read_bytes() for log in logs))
    return statistics.mean(log.best_auc for log in logs)


def compare(interplay: float, results: Mapping[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Returns the metrics and costs of each model, and MAIN's lead over it with its interval over rows and seeds.

    With interplay, every other model has a verdict; without, only the best one.

    Args:
        interplay: Strength of the interaction of texts and features.
        results: The results of each model's training runs, from run_sweep.
    """
    models: dict[str, Any] = {}
    for name, runs in results.items():
        models[name] = {key: [run["test"][key] for run in runs] for key in ("auc", "rig", "log_loss")}
        models[name] |= {"validation_auc": [run["validation"]["auc"] for run in runs], "costs": runs[0]["costs"]}
    others = [name for name in models if name != MAIN]
    best = max(others, key=lambda name: statistics.mean(models[name]["validation_auc"]))
    of_main = sides(results[MAIN])[""]
    said: Said = "gain" if interplay else "no gain"
    for name in others:
        compared = compare_sides(sides(results[name])[""], of_main, "auc")
        assert compared.tested  # the test rows have both classes
        models[name]["behind"] = compared.to_json()
        if interplay or name == best:
            models[name] |= {"said": said, "verdict": verdict(said, compared.tested.interval, MARGIN)}
    return {"best_of_the_others": best, "models": models}


def table(report: Mapping[str, Any]) -> Table:
    """Returns a table with a section for each log. A star marks the best of the others on the validation rows."""
    rows: list[dict[str, Any] | None] = []
    for log in report["logs"]:
        rows += [None, {"name": f"interplay {log['interplay']:g}: best possible", "auc": [log["best_auc"]]}]
        for name, model in log["models"].items():
            rows.append({"name": name + ("*" if name == log["best_of_the_others"] else ""), **model})

    def mean(key: str) -> Cell:
        return lambda one: f"{statistics.mean(one[key]):.4f}" if key in one else ""

    columns: dict[str, Cell] = {
        "model": "{name}",
        "AUC": mean("auc"),
        "RIG": mean("rig"),
        f"{MAIN} ahead": if_any("behind", "{behind[difference]:+.4f}"),
        "95%": if_any("behind", "{behind[interval][0]:+.4f} .. {behind[interval][1]:+.4f}"),
        "claim": if_any("said", "{said}"),
        "verdict": if_any("verdict", "{verdict}"),
        "training, ms a row": if_any("costs", "{costs[training][median]:.3f}"),
        "inference": if_any("costs", "{costs[inference][median]:.3f}"),
    }
    title = f"Test AUC, mean of {report['seeds']} seeds; the 95% interval of the difference is over rows and seeds"
    result = result_table(title, columns, rows)
    result.caption = "*: best of the others on the validation rows."
    return result


@Benchmark("studies.text_claims", table)
@click.option(
    "--interplay",
    "interplays",
    multiple=True,
    type=click.FloatRange(0, 10),
    default=(0.0, 1.0),
    help="Strength of the interaction of texts and features. Repeatable.",
)
@click.option("--model", "names", multiple=True, type=click.Choice(list(MODELS)), help="Repeatable. Default: all.")
@click.option("--seeds", type=click.IntRange(2), default=5, help="Training runs of each model.")
@click.option("--lines", type=click.IntRange(WORLD), default=40_000, help="Lines of each log, of about 1.5 rows each.")
@click.option("--epochs", type=click.IntRange(1), default=EPOCHS, help="Epochs after a first stage.")
@folder_option("text_claims")
def main(
    report: Report,
    interplays: Sequence[float],
    names: Sequence[str],
    seeds: int,
    lines: int,
    epochs: int,
    folder: pathlib.Path,
) -> None:
    """Test BERT4CTR's claims on generated logs whose texts and features do or do not interact.

    Prints a table, writes JSON, and prints the JSON on the last line. After an interrupt the same command resumes.
    """
    if lines % WORLD:
        raise InputError(f"--lines should be a multiple of {WORLD:,}. Received: {lines:,}")
    load_tensorflow()
    from ctrpipe.pipeline.sweep.run import run_sweep  # imports TFX: 1 s that --help does without

    plan = plan_of([name for name in MODELS if not names or name in {*names, MAIN}], seeds, epochs)
    report.add_load()
    report |= {"seeds": seeds, "epochs": epochs, "training": TRAINING, "settings": MODELS, "logs": []}
    for interplay in interplays:
        place = folder / fingerprint(
            interplay, lines, WORLD, CLICK_RATE, dataclasses.asdict(PARTS), stage_version(GENERATOR)
        )
        log, about = make_log(interplay, lines, place)
        report["logs"].append(about | compare(interplay, run_sweep(plan, [log], place / "sweep")))
        report.write()


if __name__ == "__main__":
    main()
