import dataclasses
import json
import subprocess
import sys

import pytest

from ctrpipe.models.base.feature_map import FeatureMap, Field, Text


def small() -> FeatureMap:
    return FeatureMap.from_sizes(
        [("a", "categorical", 3, 1, "feature"), ("b", "multivalent", 2, 4, "feature")], ("x",), ("ctr", "cvr")
    )


def test_fields_lie_one_behind_the_other_after_padding():
    a, b = small().fields
    assert (a.offset, a.size, b.offset, b.size) == (1, 5, 6, 4)
    assert (a.unknown_id, a.missing_id) == (1, 2)
    assert small().total_ids == 10
    assert small().total_slots == 5


def test_json_round_trip_keeps_everything(tmp_path):
    value = FeatureMap.from_sizes([("a", "time", 24, 1, "position")], text=Text(64, 300))
    value.save(tmp_path / "map.json")
    assert FeatureMap.load(tmp_path / "map.json") == value


@pytest.mark.parametrize("text", ["[]", "{}", '{"fields": [{"name": "a"}], "dense": [], "tasks": [], "text": null}'])
def test_other_json_is_refused(text):
    with pytest.raises(ValueError, match="^Not a feature map: "):
        FeatureMap.from_json(text)


def test_offsets_that_overlap_are_refused():
    value = json.loads(small().to_json())
    value["fields"][1]["offset"] = 5
    with pytest.raises(ValueError, match="offset should be 6. Received: offset=5"):
        FeatureMap.from_json(json.dumps(value))


def test_more_ids_than_int32_are_refused():
    with pytest.raises(ValueError, match="int32"):
        FeatureMap.from_sizes([("a", "categorical", 2**31 - 3, 1, "feature")])


def test_repeated_names_and_bad_fields_are_refused():
    with pytest.raises(ValueError, match="unique"):
        FeatureMap.from_sizes([("a", "categorical", 3, 1, "feature")], dense=("a",))
    with pytest.raises(ValueError, match="kind"):
        Field("a", "colour", 5, 1)
    with pytest.raises(ValueError, match="slots"):
        Field("a", "categorical", 5, 1, slots=0)


def loaded_modules(code: str, backend: str = "jax") -> set[str]:
    script = f"import os, sys; os.environ['KERAS_BACKEND'] = {backend!r}\n{code}\nprint('\\n'.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def test_a_feature_map_loads_no_keras():
    assert not {"keras", "numpy", "tensorflow"} & loaded_modules("from ctrpipe.models import FeatureMap")


@pytest.mark.slow
def test_models_import_no_tensorflow():
    code = (
        "import ctrpipe, importlib, pathlib\n"
        "from ctrpipe.common.packages import code_files, module_name\n"
        "root = pathlib.Path(ctrpipe.__file__).parents[1]\n"
        "for name in (module_name(root, path) for path in code_files(root)):\n"
        "    if name.startswith('ctrpipe.models'):\n"
        "        importlib.import_module(name)\n"
    )
    found = loaded_modules(code)
    assert {"ctrpipe.models.attention_net", "ctrpipe.models.text.bert4ctr", "keras"} <= found
    assert "tensorflow" not in found


def test_the_share_of_negatives_travels_with_the_map():
    value = dataclasses.replace(small(), negative_sampling=0.1)
    assert FeatureMap.from_json(value.to_json()).negative_sampling == 0.1
    older = {key: part for key, part in json.loads(value.to_json()).items() if key != "negative_sampling"}
    assert FeatureMap.from_json(json.dumps(older)).negative_sampling == 1.0


@pytest.mark.parametrize("share", [0.0, 1.5, float("nan")])
def test_a_share_outside_its_limits_is_refused(share):
    with pytest.raises(ValueError, match="negative_sampling should be in"):
        dataclasses.replace(small(), negative_sampling=share)
