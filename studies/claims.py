"""Tests claims of the models' papers on generated logs with known true probabilities.

    python -m studies.claims [--claim top_k ...] [--seeds 5] [--rows 40000] [--epochs 15] [--folder DIR]

Both sides of a claim have the same rows, settings, seeds and budget, and differ only in the subject of the claim. Their
test AUCs are compared over rows and seeds, as in `ctrpipe compare`. A claimed gain holds if the 95% interval of the
difference lies above 0, a claim of no loss if it lies above -MARGIN. A claim does not hold if the whole interval lies
below; otherwise the result is undecided. If two models are claimed to be equal, the second gets the first's trained
weights, and each row's probabilities may differ by at most SAME. LR and the true probabilities serve as references.
Training runs stored in --folder are not repeated.

The logs have categorical columns without effects of single columns; logits have a standard deviation of 2:

- `sparse`: four pairs of 16 columns interact, by the product of their values' signs; the other columns are noise.
- `vectors`: triples of columns interact by the sum over d of the product of the d-th elements of their values' vectors.
- `by_pair`: every pair of columns interacts by vᵀ M w of its values' vectors, with a separate matrix M for each pair.
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import click
import numpy as np
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import folder_option
from benchmarks.harness.packed_log import PARTS, PackedLog, predicted, trained, with_weights, write_packed_log
from benchmarks.harness.result_table import Cell, result_table
from benchmarks.harness.verdicts import DOES_NOT_HOLD, HOLDS, Said, verdict
from ctrpipe.common import metrics
from ctrpipe.common.files import atomic_path
from ctrpipe.common.fingerprints import fingerprint
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.compare.rows_and_seeds import Difference
from ctrpipe.pipeline.compare.shards import shards
from ctrpipe.pipeline.compare.sides import compare_sides, side
from ctrpipe.pipeline.config import Model, Training
from ctrpipe.transforms.generate.click_model import sigmoid
from ctrpipe.transforms.generate.sample import GeneratedRows

MARGIN = 0.001  # of AUC: a smaller loss counts as none
SAME = 1e-5  # maximum difference of equal probabilities
VECTOR = 3  # length of a value's vector
LOGIT_DEVIATION, BIAS = 2.0, -1.0
WORLD = 7  # seed of the hidden effects, shared by all rows

TRAINING = Training(
    batch_size=512, epochs=15, learning_rate=0.003, monitor="auc", patience=4, plateau=None, distribution="one_device"
)
# Near zero, a product of three embeddings has no gradient.
FACTORS = {"embedding_dim": 8, "embedding_stddev": 0.3}
ATTENTION_NET = {**FACTORS, "embedding_dim": 16, "layers": 2, "heads": 2, "hidden_units": (64, 64)}
TOKENS = {**ATTENTION_NET, "layers": 1, "key_dim": 8, "value_dim": 16, "ffn_dim": 32}


Logits = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Truth:
    """The click model of a log.

    Attributes:
        columns: Number of columns.
        values: Number of values of each.
        logits: Makes, from a random generator, the function from codes `[N, columns]` to unscaled logits `[N]`.
    """

    columns: int
    values: int
    logits: Callable[[np.random.Generator], Logits]


def _sparse_pairs(random: np.random.Generator) -> Logits:
    signs = np.stack([random.permutation(np.repeat([-1.0, 1.0], 15)) for _ in range(8)])

    def logits(codes: np.ndarray) -> np.ndarray:
        of = [signs[column, codes[:, column]] for column in range(len(signs))]
        return sum((first * second for first, second in zip(of[::2], of[1::2], strict=True)), np.zeros(len(codes)))

    return logits


def _centred_vectors(random: np.random.Generator, columns: int) -> np.ndarray:
    """Returns vectors `[columns, 10, VECTOR]` with mean 0 over a column's 10 values: no effect of a single column."""
    vectors = random.normal(size=(columns, 10, VECTOR))
    return vectors - vectors.mean(1, keepdims=True)


def _vector_triples(random: np.random.Generator) -> Logits:
    vectors = _centred_vectors(random, 6)
    triples = ((0, 1, 2), (3, 4, 5))

    def logits(codes: np.ndarray) -> np.ndarray:
        of = [vectors[column, codes[:, column]] for column in range(len(vectors))]
        return sum(((of[a] * of[b] * of[c]).sum(1) for a, b, c in triples), np.zeros(len(codes)))

    return logits


def _matrix_by_pair(random: np.random.Generator) -> Logits:
    vectors = _centred_vectors(random, 6)
    matrices = {pair: random.normal(size=(VECTOR, VECTOR)) for pair in itertools.combinations(range(6), 2)}

    def logits(codes: np.ndarray) -> np.ndarray:
        of = [vectors[column, codes[:, column]] for column in range(len(vectors))]
        products = (np.einsum("nd,de,ne->n", of[a], matrix, of[b]) for (a, b), matrix in matrices.items())
        return sum(products, np.zeros(len(codes)))

    return logits


TRUTHS = {
    "sparse": Truth(16, 30, _sparse_pairs),
    "vectors": Truth(6, 10, _vector_triples),
    "by_pair": Truth(6, 10, _matrix_by_pair),
}


@dataclasses.dataclass(frozen=True)
class Claim:
    """A paper's claim about one model compared with another.

    Attributes:
        name: Its name for --claim.
        source: The paper and its section or table.
        log: One of TRUTHS.
        models: The name and model of each side: first the reference, then the model that the claim is about.
        kind: The claim: a gain in AUC, no loss, or the same output from the same weights.
    """

    name: str
    source: str
    log: str
    models: tuple[tuple[str, Model], tuple[str, Model]]
    kind: Said | Literal["same"]

    def verdict(self, difference: Difference, largest: float) -> str:
        """Returns whether the claim holds; see verdicts.verdict.

        Args:
            difference: The difference of the AUCs.
            largest: The largest difference between the sides' probabilities of a row, for the same seed.
        """
        if self.kind == "same":
            return HOLDS if largest <= SAME else DOES_NOT_HOLD
        return verdict(self.kind, difference.interval, MARGIN)


def _model(name: str, settings: dict[str, Any], **own: Any) -> Model:
    return Model(name=name, **settings, **own)


_WHOLE = _model("hiformer", TOKENS, qk_rank=None, v_rank=None)
CLAIMS = (
    Claim(
        "top_k",
        "Attention-Net, Table 1: the k largest scores of a row, against all scores",
        "sparse",
        (
            ("all 16", _model("attention_net", ATTENTION_NET, top_k=None)),
            ("top 3", _model("attention_net", ATTENTION_NET, top_k=3)),
        ),
        "gain",
    ),
    Claim(
        "vector_wise",
        "xDeepFM, Table 2: CIN against CrossNet",
        "vectors",
        (("CrossNet", _model("crossnet", FACTORS, layers=2)), ("CIN", _model("cin", FACTORS, maps=(32, 32)))),
        "gain",
    ),
    Claim(
        "heterogeneous",
        "Hiformer, section 3.3, Table 1: HeteroAtt against the Transformer",
        "by_pair",
        (("Transformer", _model("transformer", TOKENS)), ("HeteroAtt", _model("hetero_att", TOKENS))),
        "gain",
    ),
    Claim(
        "composite",
        "Hiformer, section 3.4, Table 1: Hiformer against HeteroAtt",
        "by_pair",
        (("HeteroAtt", _model("hetero_att", TOKENS)), ("Hiformer", _WHOLE)),
        "gain",
    ),
    Claim(
        "low_rank",
        "Hiformer, section 3.5.1, Table 2: low ranks against whole matrices",
        "by_pair",
        (("whole", _WHOLE), ("low rank", _model("hiformer", TOKENS, qk_rank=14, v_rank=28))),
        "no loss",
    ),
    Claim(
        "pruning",
        "Hiformer, section 3.5.2: the last layer for the task token alone",
        "by_pair",
        (("all tokens", _model("transformer", TOKENS, prune=False)), ("pruned", _model("transformer", TOKENS))),
        "same",
    ),
)


def draw(truth: Truth, rows: int, seed: int) -> GeneratedRows:
    """Returns rows with uniform values; effects and scale are the same for all seeds."""
    logits = truth.logits(np.random.default_rng(WORLD))
    sample = np.random.default_rng([WORLD, 0]).integers(truth.values, size=(100_000, truth.columns))
    scale = LOGIT_DEVIATION / logits(sample).std()
    random = np.random.default_rng([WORLD, 1, seed])
    codes = random.integers(truth.values, size=(rows, truth.columns))
    probabilities = sigmoid(BIAS + scale * logits(codes))
    labels = (random.random(rows) < probabilities).astype(np.int8)
    return GeneratedRows(codes, (truth.values,) * truth.columns, labels, probabilities)


def make_log(name: str, rows: int, folder: pathlib.Path) -> PackedLog:
    """Returns a new log from one of TRUTHS."""
    truth = TRUTHS[name]
    parts = {part: draw(truth, int(rows * of), seed) for part, (seed, of) in PARTS.items()}
    columns = [f"C{index + 1}" for index in range(truth.columns)]
    return write_packed_log(name, columns, parts, folder)


def trainings(
    model: Model,
    training: Training,
    log_name: str,
    log: PackedLog,
    seeds: Iterable[int],
    folder: pathlib.Path,
    told_by: Model | None = None,
) -> list[np.ndarray]:
    """Returns the test predictions of each training run, `[N]`; reads stored ones from the folder.

    Args:
        model: The model to train.
        training: The training settings.
        log_name: One of TRUTHS.
        log: The log.
        seeds: The seeds of the training runs.
        folder: Folder for the results.
        told_by: The model that predicts with the trained weights; None: the trained model itself.
    """
    results = []
    for seed in seeds:
        rows = (log_name, len(log.labels), log.best_auc)
        training_key = fingerprint(model, training, seed, rows)
        path = folder / "trainings" / f"{fingerprint(training_key, told_by)}.npy"
        if not path.exists():
            # The folder depends only on the training run, not on the predicting model: a finished run is not repeated.
            learner = trained(model, training, log, seed, folder / "work" / training_key)
            if told_by:
                learner = with_weights(told_by, training, log, learner.weights())
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(path) as partial, open(partial, "wb") as file:
                np.save(file, predicted(learner, log))
        results.append(np.load(path))
        announce(f"{log_name}: {model.name}, seed {seed}: test AUC {metrics.auc(log.labels, results[-1]):.4f}")
    return results


def check(claim: Claim, training: Training, log: PackedLog, seeds: int, folder: pathlib.Path) -> dict[str, Any]:
    """Trains both sides of a claim and LR; returns their AUCs, the difference and the verdict."""
    (other, other_model), (claimed, claimed_model) = claim.models

    def scores(model: Model, told_by: Model | None = None) -> list[np.ndarray]:
        return trainings(model, training, claim.log, log, range(seeds), folder, told_by)

    scored = {"LR": scores(Model(name="lr")), other: scores(other_model)}
    scored[claimed] = scores(other_model, claimed_model) if claim.kind == "same" else scores(claimed_model)
    shard = shards(len(log.labels))
    of_other, of_claimed = (side(log.labels, scored[name], shard) for name in (other, claimed))
    tested = compare_sides(of_other, of_claimed, "auc").tested
    assert tested  # the test rows have both classes
    largest = max(float(np.abs(a - b).max()) for a, b in zip(scored[other], scored[claimed], strict=True))
    return {
        "source": claim.source,
        "log": claim.log,
        "best_auc": log.best_auc,
        "auc": {name: [metrics.auc(log.labels, values) for values in results] for name, results in scored.items()},
        "difference": dataclasses.asdict(tested),
        "largest_difference_of_a_row": largest,
        "said": claim.kind,
        "verdict": claim.verdict(tested, largest),
    }


def table(report: Mapping[str, Any]) -> Table:
    def auc(place: int, cell: str) -> Callable[[Mapping[str, Any]], str]:
        def shown(result: Mapping[str, Any]) -> str:
            side, aucs = list(result["auc"].items())[place]
            return cell.format(side, np.mean(aucs))

        return shown

    columns: dict[str, Cell] = {
        "claim": "{claim}",
        "log": "{log}",
        "best": "{best_auc:.4f}",
        "LR": auc(0, "{1:.4f}"),
        "without it": auc(1, "{0} {1:.4f}"),
        "with it": auc(2, "{0} {1:.4f}"),
        "difference": "{difference[difference]:+.4f}",
        "interval": "{difference[interval][0]:+.4f} .. {difference[interval][1]:+.4f}",
        "said": "{said}",
        "verdict": "{verdict}",
    }
    title = f"Test AUC, mean of {report['seeds']} seeds; the 95% interval of the difference is over rows and seeds"
    return result_table(title, columns, [{"claim": name, **one} for name, one in report["claims"].items()])


@Benchmark("studies.claims", table)
@click.option(
    "--claim", "names", multiple=True, type=click.Choice([claim.name for claim in CLAIMS]), help="Default: all."
)
@click.option("--seeds", type=click.IntRange(2), default=5, help="Training runs of each side.")
@click.option("--rows", type=click.IntRange(1000), default=40_000, help="Training rows of each log.")
@click.option("--epochs", type=click.IntRange(1), default=TRAINING.epochs, help="Maximum epochs of a training run.")
@folder_option("claims")
def main(report: Report, names: Sequence[str], seeds: int, rows: int, epochs: int, folder: pathlib.Path) -> None:
    """Test the papers' claims on generated logs with a known truth: which hold, which do not, which are undecided.

    Prints a table, writes JSON, and prints the JSON on the last line.
    """
    training = TRAINING.model_copy(update={"epochs": epochs})
    load_tensorflow()
    folder.mkdir(parents=True, exist_ok=True)
    report |= {"rows": rows, "seeds": seeds, "training": training.model_dump(mode="json"), "claims": {}}
    report["settings"] = {
        claim.name: {name: model.model_dump(mode="json") for name, model in claim.models} for claim in CLAIMS
    }
    for claim in CLAIMS:
        if not names or claim.name in names:
            result = check(claim, training, make_log(claim.log, rows, folder), seeds, folder)
            report["claims"][claim.name] = result
            report.write()
            announce(f"{claim.name}: {result['verdict']}")


if __name__ == "__main__":
    main()
