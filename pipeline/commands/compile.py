"""`ctrpipe compile`."""

import pathlib

import click

from ctrpipe.common.libraries import importing, load_tensorflow
from ctrpipe.pipeline.commands.options import PATH


@click.command()
@click.argument("config", type=PATH)
@click.option("--output", type=PATH, required=True, help="The file to write.")
@click.option(
    "--format",
    "target",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    help="yaml for Kubeflow Pipelines, json for Vertex AI. Default: yaml.",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override one key: training.epochs=2.")
def compile(config: pathlib.Path, output: pathlib.Path, target: str, settings: tuple[str, ...]) -> None:
    """Compile the pipeline that CONFIG describes for Kubeflow Pipelines v2, one container a step.

    `yaml` is for Kubeflow Pipelines, `json` a PipelineJob for Vertex AI. The section kubeflow of CONFIG names the
    image, the volumes and what each step may use. Parameters of a run: data (paths), output, model and training (the
    sections of CONFIG, as YAML), seed, and settings, a list of KEY=VALUE.
    """
    from ctrpipe.pipeline.config import load_config  # 0.2 s that `ctrpipe --help` does without

    loaded = load_config(config, settings)
    load_tensorflow()
    with importing():
        # TFX and Kubeflow's compiler: 6 s, which a mistake in the configuration does without.
        from ctrpipe.pipeline.kubeflow.compile import compile_pipeline

    steps = compile_pipeline(loaded, output, vertex=target == "json")
    click.echo(f"Steps: {', '.join(steps)}")
    click.echo(f"Written: {output}")
