"""The examples in the docstrings of models/: they run and print what they say, and every layer and model has one."""

import doctest
import importlib
import inspect
import pathlib
import pkgutil

import keras
import pytest

import ctrpipe.models

ROOT = pathlib.Path(ctrpipe.models.__file__).parent
MODULES = sorted(info.name for info in pkgutil.walk_packages([str(ROOT)], "ctrpipe.models.") if not info.ispkg)
# Base classes of models: the docstring names the subclass that has an example.
BASES = {
    "Cascading": "CascadingWideDeep",
    "MultiTaskModel": "MMoE",
    "NumberTextModel": "NumBERT",
    "TextModel": "TextOnly",
    "TokenModel": "AutoInt",
    "TokenTransformer": "Transformer",
}


def public_classes(module) -> list[type]:
    """The Keras classes that a module defines."""
    classes = [value for value in vars(module).values() if inspect.isclass(value)]
    kinds = (keras.layers.Layer, keras.losses.Loss)
    return [value for value in classes if value.__module__ == module.__name__ and issubclass(value, kinds)]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_print_what_they_say(name):
    module = importlib.import_module(name)
    finder, runner, printed = doctest.DocTestFinder(), doctest.DocTestRunner(verbose=False), []
    for example in finder.find(module, name):
        runner.run(example, out=printed.append)
    assert not printed, "".join(printed)


@pytest.mark.parametrize("name", MODULES)
def test_every_public_layer_and_model_has_an_example(name):
    for owner in public_classes(importlib.import_module(name)):
        text = str(owner.__doc__)
        if owner.__name__ in BASES:
            assert f"docstring of {BASES[owner.__name__]} has" in " ".join(text.split()), owner
        else:
            assert "Example:\n" in text and owner.__name__ in text.split("Example:\n")[1], owner
