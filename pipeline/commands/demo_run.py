"""`ctrpipe demo`: generates a log, trains a model on it, serves the model and sends it requests."""

import pathlib
from typing import Any

import numpy as np
import pyarrow.parquet

from ctrpipe.common.command_lines import command_name, next_steps
from ctrpipe.common.metrics import summarise
from ctrpipe.common.output_folder import check_output
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.config import load_config
from ctrpipe.pipeline.report.summary import print_summary
from ctrpipe.pipeline.run.next_steps import after_push, open_report
from ctrpipe.pipeline.run.run import run
from ctrpipe.serving.client import RestClient
from ctrpipe.serving.client.predict_rows import predict_rows
from ctrpipe.serving.server import ServerOptions, running_server
from ctrpipe.transforms.generate import ClickModel, generate
from ctrpipe.transforms.log.files import open_text

# Two pairs of columns decide most of the clicks, and single columns hardly matter: a logistic regression cannot learn
# this. The columns have few values, so 28,000 training rows contain enough of every combination.
CLICK_MODEL = ClickModel("pairs", main_strength=1.0, pair_strength=1.5, pairs=(("C17", "C20"), ("C14", "C23")))


def run_demo(output: pathlib.Path, rows: int, config_path: pathlib.Path) -> bool:
    """Generates a log, runs the pipeline on it, serves the model, requests predictions and prints the summary.

    Args:
        output: The folder of the log and of the run.
        rows: Number of rows of the log.
        config_path: The run's configuration, for a log in Criteo's format.

    Returns:
        Whether the model was blessed.

    Raises:
        InputError: the configuration, the number of rows or the folder cannot be used.
    """
    config = load_config(config_path)
    check_output(output)
    log = output / "sample.tsv"
    announce(f"Generating {rows:,} rows in Criteo's format")
    generated = generate("criteo", rows, config.seed, log, click_model=CLICK_MODEL)
    metrics = run(config, [str(log)], output)
    model = output / "models" / config.serving.model_name
    if metrics["blessed"]:
        announce("Serving the model and asking it for predictions over REST")
        with running_server(ServerOptions(model, config.serving.model_name)) as addresses:
            with RestClient(f"{addresses.rest}/v1/models/{config.serving.model_name}") as client:
                answers = list(predict_rows(client, log, 5, model))
        for row in answers:
            print(f"  line {row.line}: click probability {row.probability:.4f}")
    print_summary(output, config, _best_possible(generated.truth_path, log, metrics["examples"]))
    own, blessed = command_name(), bool(metrics["blessed"])
    use = after_push(config, [str(log)], output, output) if blessed else [open_report(output)]
    print(next_steps(*use, [own, "init", str(log), "--output", "first.yaml"]))
    return blessed


def _best_possible(truth: pathlib.Path, log: pathlib.Path, test_rows: int) -> dict[str, Any]:
    """Returns the metrics of the generator's own probabilities on the test rows, the last rows of the log."""
    probabilities = pyarrow.parquet.read_table(truth)["probability"].to_numpy()[-test_rows:]
    with open_text(str(log)) as file:
        labels = np.array([line[:1] == b"1" for line in file][-test_rows:], np.float32)
    return summarise(labels, probabilities)
