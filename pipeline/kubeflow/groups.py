"""The steps of a compiled run, side by side or in groups. Kubeflow's pages show a group as a nested pipeline."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from kfp import dsl

from ctrpipe.pipeline.kubeflow.nodes import key
from ctrpipe.pipeline.kubeflow.task import REPORT, VERDICT

Source = tuple[str, str]  # a step, and the name of one of its outputs
# Each group with its steps, in the order of a run. A step needs only steps of its own group and of earlier ones.
GROUPS = {
    "Data": (
        "LogExampleGen",
        "LogStatisticsGen",
        "ImportSchemaGen",
        "ExampleValidator",
        "LogTransform",
        "DriftCheck",
    ),
    # The models that the gates compare: the new one, the baseline, those of other seeds, and the one in use.
    "Models": ("Trainer", "Trainer.baseline", "SeedTrainings", "LastBlessedModel"),
    "Gates": ("ServingCheck", "DriftGate", "GatedEvaluator"),
    "Push and report": ("AtomicPusher", "ExamplesForInference", "BulkInferrer", REPORT, VERDICT),
}
_PARAMETER = "String"


@dataclasses.dataclass(frozen=True)
class RunStep:
    """A step of a run, without Prepare.

    Args:
        name: The step's name.
        component: kfp's component.
        inputs: The source of each input.
        outputs: The types of the outputs by name.
        cached: Whether its outputs may come from an earlier run.
    """

    name: str
    component: Any
    inputs: dict[str, Source]
    outputs: dict[str, str]
    cached: bool = True


MakeTask = Callable[..., Any]  # makes the task of a component, from its name, whether it is cached, and its inputs


def make_steps(steps: list[RunStep], channels: dict[Source, Any], make: MakeTask) -> None:
    """Makes a task of each step.

    Args:
        steps: The steps in topological order.
        channels: kfp's channel of each source. Those of the steps are added.
        make: Makes a step's task.
    """
    for step in steps:
        values = {name: channels[source] for name, source in step.inputs.items()}
        task = make(step.component, step.name, step.cached, **values)
        channels |= {(step.name, name): task.outputs[name] for name in step.outputs}


@dataclasses.dataclass(frozen=True)
class Group:
    """A group of steps.

    Args:
        name: The name that Kubeflow's pages show.
        component: kfp's component of the nested pipeline. Its inputs and outputs are named after their sources.
        taken: The sources of its inputs.
        returned: The outputs that later groups take.
    """

    name: str
    component: Any
    taken: list[Source]
    returned: list[Source]


def nested_groups(steps: list[RunStep], make: MakeTask) -> list[Group]:
    """Returns the groups of a run in their order. kfp makes them before the pipeline that contains them."""
    types = {(step.name, name): type_ for step in steps for name, type_ in step.outputs.items()}
    group_of = {step: group for group, members in GROUPS.items() for step in members}
    groups = []
    for name, members in GROUPS.items():
        inside = [step for step in steps if group_of[step.name] == name]
        outside = [step for step in steps if group_of[step.name] != name]
        taken = sorted({at for step in inside for at in step.inputs.values() if at[0] not in members})
        returned = sorted({at for step in outside for at in step.inputs.values() if at[0] in members})
        groups.append(Group(name, _nested(name, inside, taken, returned, types, make), taken, returned))
    return groups


def make_groups(groups: list[Group], channels: dict[Source, Any]) -> None:
    """Makes a task of each group. Takes the channels of Prepare's outputs, and adds those of the groups."""
    for group in groups:
        task = group.component(**{key(*source): channels[source] for source in group.taken})
        task.set_display_name(group.name).set_caching_options(False)  # only steps have results to keep
        channels |= {source: task.outputs[key(*source)] for source in group.returned}


def _nested(
    name: str,
    steps: list[RunStep],
    taken: list[Source],
    returned: list[Source],
    types: dict[Source, str],
    make: MakeTask,
) -> Any:
    """Returns kfp's component of a nested pipeline, whose inputs and outputs are named after their sources."""

    def nested(*values: Any) -> Any:
        channels = dict(zip(taken, values, strict=True))
        make_steps(steps, channels, make)
        return outputs and outputs(*(channels[source] for source in returned))

    # kfp reads the names and types of inputs and outputs from the signature.
    fields = [(key(*source), _annotation(types[source])) for source in returned]
    outputs: Any = NamedTuple("outputs", fields) if fields else None
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    inputs = [inspect.Parameter(key(*at), kind, annotation=_annotation(types.get(at, _PARAMETER))) for at in taken]
    nested.__signature__ = inspect.Signature(inputs, return_annotation=outputs)  # type: ignore[attr-defined]
    return dsl.pipeline(name=key(*name.split()).replace("_", "-"))(nested)


def _annotation(type_: str) -> Any:
    """Returns the annotation of a parameter, or the class of an artifact."""
    return str if type_ == _PARAMETER else getattr(dsl, type_)
