"""Labels mixed with a teacher's predictions."""

import dataclasses

import numpy as np
import pytest

from ctrpipe.common.errors import InputError, NotFiniteError
from ctrpipe.pipeline.config import Model, Training
from ctrpipe.pipeline.training.data import packed_reader
from ctrpipe.pipeline.training.distillation import soften_labels
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.train import train
from ctrpipe.serving.assets import read_feature_map
from ctrpipe.serving.loader import Servable
from ctrpipe.transforms.features.packed_files import PackedWriter
from ctrpipe.transforms.log.raw_arrays import raw_arrays
from tests.serving.packed_servable import SPEC, rows, shared_version

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def teacher(shared_folder):
    return shared_version(shared_folder)


@pytest.fixture(scope="module")
def log(teacher, tmp_path_factory):
    """Packed rows, their arrays, and what the teacher predicts of them."""
    servable = Servable(teacher)
    batch = rows(3000, 5)
    packed = servable.run("transform_raw", raw_arrays(batch, SPEC))
    answer = servable.run("serving_packed", packed)
    servable.close()
    labels = np.stack([batch[name].to_numpy() for name in ("click", "buy")], axis=1).astype(np.float32)
    folder = tmp_path_factory.mktemp("packed")
    for index in range(2):
        with PackedWriter(folder / f"part-{index}.parquet") as writer:
            part = slice(1500 * index, 1500 * (index + 1))
            writer.write({**{name: value[part] for name, value in packed.items()}, "label": labels[part]})
    return f"{folder}/*", packed, labels, np.stack([answer["ctr"], answer["cvr"]], axis=1)


@pytest.mark.parametrize("weight", [0.25, 1.0])
def test_labels_are_mixed_and_rows_stay(teacher, log, tmp_path, weight):
    pattern, packed, labels, predicted = log
    fields = read_feature_map(teacher)
    written = soften_labels([pattern], fields, teacher.parent, weight, tmp_path)
    [(inputs, found)] = packed_reader([written], fields, 5000)
    np.testing.assert_allclose(found, (1 - weight) * labels + weight * predicted, atol=1e-6)
    for name, values in packed.items():
        np.testing.assert_array_equal(inputs[name], values)


def test_a_teacher_whose_predictions_are_not_finite_is_refused(teacher, log, tmp_path, monkeypatch):
    run = Servable.run

    def broken(servable, signature, inputs):
        outputs = run(servable, signature, inputs)
        return {name: np.where(np.arange(len(values)) == 7, np.nan, values) for name, values in outputs.items()}

    monkeypatch.setattr(Servable, "run", broken)
    with pytest.raises(
        NotFiniteError, match="the teacher .*predictions came out NaN.*name another training.distillation"
    ):
        soften_labels([log[0]], read_feature_map(teacher), teacher, 0.5, tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_is_there_is_not_written_again(teacher, log, tmp_path):
    fields = read_feature_map(teacher)
    written = soften_labels([log[0]], fields, teacher, 0.5, tmp_path)
    assert soften_labels([log[0]], fields, tmp_path / "absent", 0.5, tmp_path) == written


def test_a_teacher_of_other_features_is_refused(teacher, log, tmp_path):
    other = dataclasses.replace(read_feature_map(teacher), tasks=("ctr", "sale"))
    with pytest.raises(InputError, match="distillation.teacher: .* was trained on other features"):
        soften_labels([log[0]], other, teacher, 0.5, tmp_path)


def test_a_pupil_comes_nearer_to_its_teacher_than_by_the_labels(teacher, log, tmp_path):
    pattern, packed, _, predicted = log
    fields = read_feature_map(teacher)
    model = Model(name="mlp", embedding_dim=4, hidden_units=[16], embedding_stddev=0.3)

    def distance(**changes) -> float:
        settings = {"batch_size": 128, "epochs": 8, "learning_rate": 0.01, "patience": 9, "distribution": "one_device"}
        training = Training.model_validate({**settings, **changes})
        work = tmp_path / ("taught" if changes else "alone")
        result = train(TrainingJob(model, training, fields, [pattern], [pattern], 1), work)
        return float(np.abs(result.learner.predict([(packed, predicted)])[1] - predicted).mean())

    taught = distance(distillation={"teacher": str(teacher), "weight": 1.0})
    assert taught < 0.6 * distance()


def test_a_teacher_that_reads_no_numbers_teaches_a_pupil_that_does(teacher, log, tmp_path):
    pattern, packed, labels, predicted = log
    fields = read_feature_map(teacher)
    numeric = next(field.name for field in fields.fields if field.kind == "numeric")
    numbers = np.tile(np.array([[35, 1]], np.int32), (len(labels), 1))
    with PackedWriter(tmp_path / "part-0.parquet") as writer:
        writer.write({**packed, "numbers": numbers, "label": labels})
    pupil = dataclasses.replace(fields, numbers=(numeric,))
    written = soften_labels([f"{tmp_path}/*.parquet"], pupil, teacher, 1.0, tmp_path / "mixed")
    [(inputs, mixed)] = packed_reader([written], pupil, 5000)
    np.testing.assert_allclose(mixed, predicted, atol=1e-6)
    np.testing.assert_array_equal(inputs["numbers"], numbers)
