"""The command `ctrpipe predict`."""

import pathlib
from typing import TYPE_CHECKING

import click

from ctrpipe.common.errors import InputError
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.lines import say
from ctrpipe.pipeline.commands.options import CONFIG, MODEL, PATH_OR_URL

if TYPE_CHECKING:
    from ctrpipe.serving.client import ModelClient
    from ctrpipe.serving.client.predict_rows import Explanation


@click.command()
@click.option("--url", default=None, help="http://HOST:PORT/v1/models/NAME[/versions/N | /labels/L]")
@click.option("--grpc", default=None, metavar="HOST:PORT", help="Use gRPC instead.")
@click.option("--model_name", default=None, help="Name of the model, with --grpc.  [default: ctr]")
@click.option("--label", default=None, help="Use the version with this label.")
@click.option("--label-weights", default=None, metavar="stable=95,canary=5", help="Split the rows between labels.")
@click.option("--key", default=None, metavar="COLUMN", help="Send rows with equal values to the same label.")
@click.option("--input", "file", required=True, type=PATH_OR_URL, help="A raw log in the format of the training log.")
@click.option("--rows", type=click.IntRange(1), default=10, show_default=True, help="Number of rows to send.")
@click.option("--model", type=MODEL, help="Folder of the served model, which describes the log's format.", default=None)
@click.option("--config", type=CONFIG, help="Configuration of the run, instead of --model.", default=None)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=30.0,
    show_default=True,
    help="Timeout of a request in seconds.",
)
@click.option("--explain", is_flag=True, help="Also print the contribution of each column to the logit, as bars.")
@click.option("--verbose", is_flag=True, help="Also print the label and the version that responded.")
def predict(
    url: str | None,
    grpc: str | None,
    model_name: str | None,
    label: str | None,
    label_weights: str | None,
    key: str | None,
    file: pathlib.Path | str,
    rows: int,
    model: pathlib.Path | None,
    config: pathlib.Path | None,
    timeout: float,
    explain: bool,
    verbose: bool,
) -> None:
    """Send rows to a server and print the predictions.

    Prints one line per row: the line number in the file (for Parquet, the row number), a tab and the probability. With
    --verbose, the label (- if none was used) and the version follow. With --explain, a table of the columns follows
    each row; the model must be exported with serving.explain.
    """
    # Lazy: numpy, pyarrow and pydantic take 0.4 s to import.
    from ctrpipe.pipeline.config import load_config
    from ctrpipe.serving.client.predict_rows import predict_rows
    from ctrpipe.transforms.log.batches import Reject

    rejects: list[Reject] = []
    printed = 0
    spec = load_config(config).log_spec if config else None
    with _client(url, grpc, model_name, label, label_weights, key, timeout, verbose) as client:
        for row in predict_rows(client, file, rows, model, spec, key, rejects.append, explain):
            answered = f"\t{row.label or '-'}\t{row.version}" if verbose else ""
            click.echo(f"{row.line}\t{row.probability:.6f}{answered}")
            if row.explanation:
                _print_explanation(row.explanation, row.probability, f"{file}:{row.line}")
            printed += 1
    if rejects:
        first = f"line {rejects[0].line}: {rejects[0].reason}"
        say(f"{len(rejects)} malformed rows were skipped; the first is {first}", err=True)
    if not printed:
        raise InputError(f"{file}: no good row in it; check --input and the log's format")
    if printed < rows:
        say(f"{file} has {printed} good rows, fewer than the {rows} asked for", err=True)


def _print_explanation(explanation: "Explanation", probability: float, line: str) -> None:
    import pyarrow as pa  # lazy: takes 0.3 s together with rich

    from ctrpipe.pipeline.explain.explained_row import served_explanation
    from ctrpipe.pipeline.explain.show_row import print_row

    row = pa.Table.from_batches([explanation.row])
    print_row(served_explanation(row, probability, explanation.logit, explanation.baseline, explanation.columns), line)


def _client(
    url: str | None,
    grpc: str | None,
    model_name: str | None,
    label: str | None,
    label_weights: str | None,
    key: str | None,
    timeout: float,
    verbose: bool,
) -> "ModelClient":
    from ctrpipe.serving.client import LabelSplit, RestClient  # lazy: 0.3 s

    if (url is None) == (grpc is None):
        raise InputError("Give --url http://HOST:PORT/v1/models/NAME, or --grpc HOST:PORT")
    if url and model_name:
        raise InputError("--model_name applies to --grpc; --url already contains the name")
    if label and label_weights:
        raise InputError("Give --label or --label-weights, not both")
    if key and not label_weights:
        raise InputError("--key needs --label-weights")
    split = LabelSplit.parse(label_weights) if label_weights else None
    if url:
        return RestClient(url, label=label, split=split, timeout=timeout, say_version=verbose)
    load_tensorflow()
    from ctrpipe.serving.client.grpc_client import GrpcClient  # lazy: TensorFlow takes 3 s, REST does not need it

    return GrpcClient(str(grpc), model_name or "ctr", label=label, split=split, timeout=timeout)
