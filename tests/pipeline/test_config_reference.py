import pathlib
import re
from typing import Annotated

import pydantic
import pytest
import yaml

from ctrpipe.models.base.registry import available
from ctrpipe.pipeline.config import RunConfig, check_config, read_yaml
from ctrpipe.pipeline.config.reference import reference, sections
from tests.small_config import SMALL, joined

ROOT = pathlib.Path(__file__).parents[2]
SECTIONS = sections()
FIELDS = [(section.model, name) for section in SECTIONS for name in section.model.model_fields]


def test_the_committed_reference_is_what_the_generator_prints():
    written = (ROOT / "docs" / "configuration.md").read_text()
    assert written == reference(), "run: .venv/bin/python -m ctrpipe.pipeline.config.reference > docs/configuration.md"


@pytest.mark.parametrize(("section", "name"), FIELDS, ids=[f"{section.__name__}.{name}" for section, name in FIELDS])
def test_every_field_has_a_description_and_valid_examples(section, name):
    field = section.model_fields[name]
    assert field.description and len(field.description) > 10
    expected = pydantic.TypeAdapter(Annotated[field.annotation, "rules", *field.metadata])
    for example in field.examples or []:
        expected.validate_python(example)


@pytest.mark.parametrize("section", SECTIONS, ids=[section.model.__name__ for section in SECTIONS])
def test_the_example_of_every_section_is_valid_and_is_of_that_section(section):
    values = read_yaml(section.example)
    check_config(joined(SMALL, values), (), "example")
    keys = [place.split("`")[1].split(".")[0] for place in section.places]
    assert section.model is RunConfig or set(keys) & set(values)


def test_every_key_has_a_row_below_its_heading():
    chapters = dict(chapter.split("\n", 1) for chapter in reference().split("\n## ")[1:])
    assert {"`data.split`", "`training.plateau`", "`model`, `evaluation.baseline`"} < set(chapters)
    assert "| `epochs` | whole number, at least 1 | `10` |" in chapters["`training`"]
    assert "| `by` | `order`, `hash`, `group`, `time` or `files` | `order` |" in chapters["`data.split`"]
    labels = "mapping of text to [section](#datalabelsname-eventslabel), not empty"
    assert f"| `labels` | {labels} | required |" in chapters["`data`"]
    assert "| `warmup_requests` | whole number, at least 1, at most 249 | `10` |" in chapters["`serving`"]
    assert "[section](#trainingplateau) or null" in chapters["`training`"]
    for section in SECTIONS:
        rows = [
            line.strip("| ").split(" | ") for line in chapters[section.heading].splitlines() if line.startswith("| `")
        ]
        assert [row[0].strip("`") for row in rows] == list(section.model.model_fields)
        for key, kind, default, _, *example in rows:
            shown = default not in ("`null`", "`[]`", "`{}`", "required")
            assert example or shown or "](#" in kind or key == "`kind`", f"{section.heading}: {key} shows no example"


def test_every_hyperparameter_of_every_model_has_its_default_and_a_meaning():
    text = reference().split("\n## Hyperparameters of the models\n")[1]
    tables = {}
    for part in text.split("\n### ")[1:]:
        heading, body = part.split("\n", 1)
        rows = [line.strip("| ").split(" | ") for line in body.splitlines() if line.startswith("| `")]
        tables[heading] = {row[0].strip("`"): row[1:] for row in rows}, body
    shared = {heading.lower(): rows for heading, (rows, _) in tables.items() if " " in heading}
    for model in available():
        own, body = tables[model.name]
        inherited = {
            key: row for heading, rows in shared.items() if f"[{heading}](#" in body for key, row in rows.items()
        }
        changed = dict(re.findall(r"`(\w+)` `([^`]*)`", body.partition("Defaults that differ:")[2]))
        assert set(changed) <= set(inherited)
        for name, default in model.options.items():
            kind, shown, meaning = own.get(name) or inherited[name]
            assert yaml.safe_load(changed.get(name, shown.strip("`"))) == (
                list(default) if isinstance(default, tuple) else default
            ), f"{model.name}: {name}"
            assert len(meaning) > 10 and "See " not in meaning, f"{model.name}: {name}"
            assert meaning.endswith("."), f"{model.name}: {name}: the rest of its description is missing"
            assert not re.search(r"\b(None|True|False)\b|\(\)", meaning), f"{model.name}: {name}: Python, not YAML"
            expected = {
                bool: "true or false",
                int: "whole number",
                float: "number",
                str: "text",
                dict: "mapping of ",
            }.get(type(default))
            assert kind.startswith(expected or ("list of ", "whole number or null"))
        assert set(own) <= set(model.options)


def test_a_models_formula_and_paper_stand_in_the_reference():
    deepfm = reference().split("\n### deepfm\n")[1].split("\n### ")[0]
    assert "Source: Guo 2017." in deepfm
    assert "`logit = " in deepfm
