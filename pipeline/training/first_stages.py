"""The stages that are trained before a model: their list, the check that their weights fit, and their folders."""

import dataclasses
import itertools
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from ctrpipe.common.errors import InputError
from ctrpipe.common.fingerprints import fingerprint
from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.base.registry import check_hyperparameters, model_class
from ctrpipe.models.text.text_model import TextModel
from ctrpipe.pipeline.config import FirstStage
from ctrpipe.pipeline.training import masked_language_model
from ctrpipe.pipeline.training.data import count_rows, even_batch, packed_batches
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.learner import Batch
from ctrpipe.pipeline.training.network import build_network
from ctrpipe.pipeline.training.process import Report


def first_stages(job: TrainingJob, network: CTRModel) -> list[TrainingJob]:
    """Returns the training jobs of the models whose weights the network takes, in order.

    They are the models in `network.pretraining`, and the configured ones in `network.optional_pretraining`. Each may
    have its own stages.

    Raises:
        InputError: a hyperparameter of the model is invalid for the model of the stage.
    """
    stages = _settings(job)
    later = {**type(network).options(), **job.model.hyperparameters}
    jobs = []
    for name in (*network.pretraining, *(name for name in network.optional_pretraining if name in stages)):
        stage = stages.get(name, FirstStage())
        if stage.skip:
            continue
        options = model_class(name).options_of_stage(later)
        try:
            check_hyperparameters(name, **options)
        except ValueError as error:
            raise InputError(f"training.stages.{name}: {error}") from error
        # Only the settings that this stage uses, because other models may begin with the same stage and share it.
        own = {before: stages[before] for before in sorted(_stages_of(name) & stages.keys())}
        training = stage.applied_to(job.training).model_copy(update={"stages": own})
        jobs.append(dataclasses.replace(job, model=job.model.of_stage(name, options), training=training))
    return jobs


def _stages_of(name: str) -> set[str]:
    """Returns the names of all stages of a model's training, including the stages of its first stages."""
    names = {masked_language_model.NAME}
    later = model_class(name)
    for first in (*later.pretraining, *later.optional_pretraining):
        names |= {first} | _stages_of(first)
    return names


def _settings(job: TrainingJob) -> Mapping[str, FirstStage]:
    """Returns `training.stages` as a mapping that accepts any model name."""
    return {name: stage for name, stage in job.training.stages.items()}


def check_stages(job: TrainingJob, network: CTRModel) -> None:
    """Checks on untrained networks that the weights of all first stages, including their own first stages, fit.

    Raises:
        InputError: a copied layer has another shape in the model of the stage.
    """
    for first in first_stages(job, network):
        # Built without the checkpoint, which does not affect shapes.
        stage = build_network(first.model.model_copy(update={"encoder": None}), job.feature_map, job.seed)
        for layer, (mine, trained) in network.taken_weights(stage).items():
            for weight, other in itertools.zip_longest(mine, trained):
                here, there = ("none" if each is None else tuple(each.shape) for each in (weight, other))
                if here != there:
                    raise InputError(
                        f"training.stages.{first.model.name}: {job.model.name} would start from its layer '{layer}',"
                        f" whose weight is {there} and not {here}; give both models the same widths"
                    )
        check_stages(first, stage)


def stage_folder(first: TrainingJob, work: pathlib.Path) -> pathlib.Path:
    """Returns the work folder of a first stage.

    A shared stage's name has a hash of everything that its training uses.

    Args:
        first: The job of the stage.
        work: The work folder of the training that begins with it.
    """
    name = first.model.name
    if not first.shared_stages:
        return work / f"pretrained-{name}"
    key = fingerprint(dataclasses.replace(first, shared_stages="").to_json())
    return pathlib.Path(first.shared_stages) / f"{name}-{key}"


def language_stage(job: TrainingJob, network: CTRModel) -> FirstStage | None:
    """Returns the stage that trains the network's own encoder as a masked language model, or None if there is none."""
    stage = _settings(job).get(masked_language_model.NAME)
    before = [first.model.name for first in first_stages(job, network)]
    trains = stage and not stage.skip and "text_only" not in before and isinstance(network, TextModel)
    return stage if trains else None


def train_language_stage(
    job: TrainingJob, stage: FirstStage, encoder: Any, work: pathlib.Path, report: Report | None
) -> None:
    """Trains an encoder in place as a masked language model on the texts of the job's training rows.

    Resumes from the checkpoint below `work` if there is one.

    Args:
        job: The job of the model that has the encoder.
        stage: The settings of the stage.
        encoder: The built encoder.
        work: The work folder of the job.
        report: Called with the mean loss of every epoch.
    """
    training, text, rows = stage.applied_to(job.training), job.feature_map.text, count_rows(job.train_files)
    assert text is not None  # the network has an encoder

    def of_epoch(epoch: int) -> Iterable[Batch]:
        order = (even_batch(rows, training.batch_size), job.seed + epoch)
        return packed_batches(job.train_files, job.feature_map, *order, by_length=training.bucket_by_length)

    batches = masked_language_model.TextBatches(of_epoch, rows, text)
    folder = work / f"pretrained-{masked_language_model.NAME}"
    masked_language_model.pretrain_encoder(encoder, batches, training, stage.mask_rate, job.seed, folder, report)
