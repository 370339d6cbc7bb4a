"""Models that the columns of a configuration do not allow are said in one line before the log is transformed."""

import pytest

from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.training.buildable import impossible_models

USER = {"kind": "categorical", "columns": ["user"]}


def test_a_model_without_embeddings_of_single_values_cannot_start_from_vectors():
    pretrained = {"path": "t.npz", "length": 3, "freeze": False}
    described = {
        "name": "small",
        "data": {"header": True, "labels": {"ctr": "click"}},
        "features": [{"kind": "categorical", "columns": ["item"], "pretrained": pretrained}, USER],
    }
    of_fm, of_ffm = (
        RunConfig.model_validate({**described, "model": {"name": name}, "evaluation": {"baseline": {"name": "lr"}}})
        for name in ("fm", "ffm")
    )
    assert impossible_models(of_fm) == []
    (line,) = impossible_models(of_ffm)
    assert line.startswith("model: ffm has no embedding of single values that the vectors of item could start; set")


@pytest.mark.parametrize(
    ("model", "needs"),
    [
        ({"name": "hstu"}, "HSTU needs a sequence with shared_with"),
        ({"name": "pepnet"}, "pepnet needs `domains`"),
        ({"name": "mmoe"}, "mmoe needs several labels"),
        ({"name": "fcn", "embedding_dim": 6, "heads": 2}, "`embedding_dim` should be divisible by 2 heads = 4"),
    ],
)
def test_a_model_that_the_columns_do_not_allow_is_said_before_the_log_is_transformed(model, needs):
    data = {"header": True, "labels": {"ctr": "click"}}
    described = {"name": "small", "data": data, "features": [USER], "model": model}
    (line,) = impossible_models(RunConfig.model_validate({**described, "evaluation": {"baseline": None}}))
    assert line.startswith(f"model: {needs}")


def test_a_batch_of_one_is_said_where_the_rows_are_counted():
    data = {"header": True, "labels": {"ctr": "click"}}
    described = {"name": "small", "data": data, "features": [USER], "model": {"name": "mlp", "normalization": "batch"}}
    described |= {"evaluation": {"baseline": None}, "training": {"batch_size": 2, "refit": True}}
    config = RunConfig.model_validate(described)
    assert impossible_models(config, {"train": 80, "validation": 10, "test": 10}) == []
    (line,) = impossible_models(config, {"train": 81, "validation": 11, "test": 8})
    assert line.startswith("model: training.batch_size: 2 leaves a batch of one of the 81 rows")
    (line,) = impossible_models(config, {"train": 80, "validation": 11, "test": 9})
    assert "of the 91 rows" in line  # of the refit
    assert impossible_models(config) == []
