"""The command `ctrpipe compile`."""

import pathlib

import click

from ctrpipe.common.libraries import importing, load_tensorflow
from ctrpipe.pipeline.commands.options import PATH


@click.command()
@click.argument("config", type=PATH)
@click.option("--output", type=PATH, required=True, help="File to write.")
@click.option(
    "--format",
    "target",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    help="yaml for Kubeflow Pipelines, json for Vertex AI. Default: yaml.",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key, e.g. training.epochs=2.")
def compile(config: pathlib.Path, output: pathlib.Path, target: str, settings: tuple[str, ...]) -> None:
    """Compile a pipeline for Kubeflow Pipelines v2.

    Compiles the pipeline that CONFIG describes, with one container per step: `yaml` for Kubeflow Pipelines, `json` as a
    PipelineJob for Vertex AI. The section `kubeflow` of CONFIG defines the image, the volumes and the resources of each
    step. A run has these parameters: data (paths), output, model and training (sections of CONFIG, as YAML), seed, and
    settings (a list of KEY=VALUE).
    """
    from ctrpipe.pipeline.config import load_config  # lazy: 0.2 s

    loaded = load_config(config, settings)
    load_tensorflow()
    with importing():
        # Lazy: TFX and the Kubeflow compiler take 6 s to import. An invalid configuration fails before it.
        from ctrpipe.pipeline.kubeflow.compile import compile_pipeline

    steps = compile_pipeline(loaded, output, vertex=target == "json")
    click.echo(f"Steps: {', '.join(steps)}")
    click.echo(f"Written: {output}")
