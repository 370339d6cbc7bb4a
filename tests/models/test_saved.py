"""A saved model gives the same logits after loading, and an error is one line. test_models.py loads one on JAX."""

import json

import numpy as np
import pytest

from ctrpipe.common.arrays import write_arrays
from ctrpipe.common.errors import InputError
from ctrpipe.models.base.saved import DESCRIPTION, WEIGHTS, is_saved, load_model, save_model
from tests.models.small_models import batch_of, randomised


@pytest.mark.parametrize("name", ["deepfm", "hiformer", "din", "bert4ctr", "cascading_nn_gbdt"])
def test_a_loaded_model_gives_the_logits_of_the_saved_one(name, tmp_path):
    model = randomised(name)
    save_model(tmp_path, name, model)
    loaded = load_model(tmp_path)
    assert is_saved(tmp_path) and type(loaded) is type(model) and loaded.feature_map == model.feature_map
    np.testing.assert_array_equal(np.asarray(loaded(batch_of(name))), np.asarray(model(batch_of(name))))


def test_an_existing_file_of_the_weights_is_linked_instead_of_copied(tmp_path):
    model = randomised("lr")
    existing = tmp_path / "best.npz"
    write_arrays(existing, [np.asarray(variable) for variable in model.variables])
    save_model(tmp_path / "kept", "lr", model, existing)
    assert (tmp_path / "kept" / WEIGHTS).samefile(existing)
    save_model(tmp_path / "kept", "lr", model, existing)  # as a repeated step does
    np.testing.assert_array_equal(
        np.asarray(load_model(tmp_path / "kept")(batch_of("lr"))), np.asarray(model(batch_of("lr")))
    )


def test_a_missing_mismatched_or_damaged_model_is_one_line(tmp_path):
    with pytest.raises(InputError, match="no kept model"):
        load_model(tmp_path)
    save_model(tmp_path, "lr", randomised("lr"))
    description = json.loads((tmp_path / DESCRIPTION).read_text())
    (tmp_path / DESCRIPTION).write_text(json.dumps({**description, "name": "fm", "hyperparameters": {}}))
    with pytest.raises(InputError, match="do not fit the model 'fm'"):
        load_model(tmp_path)
    (tmp_path / WEIGHTS).write_bytes(b"PK")
    with pytest.raises(InputError, match="damaged"):
        load_model(tmp_path)
