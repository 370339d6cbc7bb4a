"""`python -m ctrpipe.pipeline.kubeflow.step`: runs one step of the compiled pipeline, in or outside a container.

Kubeflow's launcher fetches the input artifacts before this process starts, and stores the output artifacts after it
ends.
"""

import importlib
import json
import os
import sys

import click

from ctrpipe.common.code_version import code_version
from ctrpipe.common.errors import InputError, without_secrets
from ctrpipe.common.exit_codes import BLOCKED, MISTAKE
from ctrpipe.common.failures import explain_mistake
from ctrpipe.common.libraries import importing_tfx, load_tensorflow
from ctrpipe.pipeline.kubeflow.task import PREPARE, SEARCH_STEPS, VERDICT, Task

# Argo starts a step with the umask 000, with which every user of the volume could change a run's files.
WRITABLE_BY_OTHERS = 0o022


def run_step(task: Task, stage: str, executor: str | None, classes: dict[str, str]) -> None:
    """Runs a step.

    Args:
        task: Kubeflow's description of the step.
        stage: The step's name.
        executor: The dotted name of its executor, for a node of the graph.
        classes: For each output, the dotted name of its TFX class.

    Raises:
        InputError: the parameters, the log or the configuration cannot be used.
    """
    if stage == VERDICT:
        verdict(task)
        return
    load_tensorflow()
    if stage in SEARCH_STEPS:
        # Lazy: Optuna takes 1 s, and no step of a run needs it.
        from ctrpipe.pipeline.kubeflow import search

        search.STEPS[stage](task)
        return
    with importing_tfx():
        # Lazy: TFX takes 3 s, and Verdict does not need it. If TFX were first to load TensorFlow, it would print
        # TensorFlow's start-up messages.
        from ctrpipe.pipeline.kubeflow import work

        if executor:
            importlib.import_module(executor.rpartition(".")[0])

    if executor:
        work.run_executor(task, executor, classes)
    elif stage == PREPARE:
        work.prepare(task)
    else:
        work.report(task)


def verdict(task: Task) -> None:
    """Ends the process with exit code 1 in the same cases as `ctrpipe run`, to make Kubeflow's run fail."""
    if task.arguments["arguments"]:
        print(f"ctrpipe: {task.arguments['arguments']}", file=sys.stderr)
        sys.exit(BLOCKED)


@click.command()
@click.option("--stage", required=True)
@click.option("--code_version", "compiled", required=True)
@click.option("--executor")
@click.option("--output", "classes", multiple=True, metavar="NAME=CLASS")
@click.option("--executor_input", required=True)
def main(stage: str, compiled: str, executor: str | None, classes: tuple[str, ...], executor_input: str) -> None:
    """Runs one step of the compiled pipeline."""
    os.umask(os.umask(0) | WRITABLE_BY_OTHERS)
    try:
        version = code_version()
        if version != compiled:
            raise InputError(f"this image has code {version}, the pipeline {compiled}; build the image, compile again")
        task = Task(json.loads(executor_input))
        run_step(task, stage, executor, dict(named.split("=", 1) for named in classes))
        task.finish()
    except Exception as error:
        mistake = explain_mistake(error)
        if not mistake:
            raise
        print(f"ctrpipe: {without_secrets(mistake)}", file=sys.stderr)
        sys.exit(MISTAKE)


if __name__ == "__main__":
    main()
