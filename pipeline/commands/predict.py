"""`ctrpipe predict`."""

import pathlib
from typing import TYPE_CHECKING

import click

from ctrpipe.common.errors import InputError
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.pipeline.commands.options import PATH

if TYPE_CHECKING:
    from ctrpipe.serving.client import ModelClient
    from ctrpipe.serving.client.predict_rows import Explanation


@click.command()
@click.option("--url", default=None, help="http://HOST:PORT/v1/models/NAME[/versions/N | /labels/L]")
@click.option("--grpc", default=None, metavar="HOST:PORT", help="Ask over gRPC instead.")
@click.option("--model_name", default=None, help="The model's name, with --grpc.  [default: ctr]")
@click.option("--label", default=None, help="Ask the version that this label points at.")
@click.option("--label-weights", default=None, metavar="stable=95,canary=5", help="Divide the rows between labels.")
@click.option("--key", default=None, metavar="COLUMN", help="Rows with the same value go to the same label.")
@click.option("--input", "file", required=True, type=PATH, help="A raw log, in the format the model was trained on.")
@click.option("--rows", type=click.IntRange(1), default=10, show_default=True, help="How many rows to send.")
@click.option("--model", type=PATH, help="The served model's folder, to read the log's format from.", default=None)
@click.option("--config", type=PATH, help="The run's configuration, instead of --model.", default=None)
@click.option("--timeout", type=click.FloatRange(0, min_open=True), default=30.0, show_default=True, help="Seconds.")
@click.option("--explain", is_flag=True, help="Also print what each column adds to the row's logit, as bars.")
@click.option("--verbose", is_flag=True, help="Also print which label and version answered.")
def predict(
    url: str | None,
    grpc: str | None,
    model_name: str | None,
    label: str | None,
    label_weights: str | None,
    key: str | None,
    file: pathlib.Path,
    rows: int,
    model: pathlib.Path | None,
    config: pathlib.Path | None,
    timeout: float,
    explain: bool,
    verbose: bool,
) -> None:
    """Send raw rows to a server and print, one a line: its line in the file (of Parquet, its row), tab, probability.

    With --verbose the label (- where none was asked) and the version follow. With --explain a table of the columns
    follows each row; the model was exported with serving.explain.
    """
    # numpy, pyarrow and pydantic: 0.4 s that `ctrpipe --help` does without.
    from ctrpipe.pipeline.config import load_config
    from ctrpipe.serving.client.predict_rows import predict_rows
    from ctrpipe.transforms.log.readers import Reject

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
        click.echo(f"{len(rejects)} malformed rows were passed over, the first is {first}", err=True)
    if not printed:
        raise InputError(f"{file}: no good row in it; check --input and the log's format")
    if printed < rows:
        click.echo(f"{file} has {printed} good rows, fewer than the {rows} asked for", err=True)


def _print_explanation(explanation: "Explanation", probability: float, line: str) -> None:
    import pyarrow as pa  # with rich, 0.3 s that other calls do without

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
    from ctrpipe.serving.client import LabelSplit, RestClient  # 0.3 s that `ctrpipe --help` does without

    if (url is None) == (grpc is None):
        raise InputError("Give --url http://HOST:PORT/v1/models/NAME, or --grpc HOST:PORT")
    if url and model_name:
        raise InputError("--model_name goes with --grpc; --url has the name in it")
    if label and label_weights:
        raise InputError("Give --label or --label-weights, not both")
    if key and not label_weights:
        raise InputError("--key goes with --label-weights")
    split = LabelSplit.parse(label_weights) if label_weights else None
    if url:
        return RestClient(url, label=label, split=split, timeout=timeout, say_version=verbose)
    load_tensorflow()
    from ctrpipe.serving.client.grpc_client import GrpcClient  # TensorFlow: 3 s, which REST does without

    return GrpcClient(str(grpc), model_name or "ctr", label=label, split=split, timeout=timeout)
