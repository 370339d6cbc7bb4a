import pathlib
from typing import Annotated

import pydantic
import pytest
import yaml

from pipeline.config import RunConfig, check_config
from pipeline.config.reference import parts, reference

ROOT = pathlib.Path(__file__).parents[2]
PARTS = parts()
FIELDS = [(part.section, name) for part in PARTS for name in part.section.model_fields]
SMALL = {
    "name": "small",
    "data": {"header": True, "labels": {"ctr": "click"}},
    "features": [{"kind": "categorical", "columns": ["device", "query", "ad"]}],
    "model": {"name": "lr"},
}


def joined(base, changes):
    """The base with the changes in it, key by key."""
    if not (isinstance(base, dict) and isinstance(changes, dict)):
        return changes
    return {**base, **{key: joined(base.get(key), value) for key, value in changes.items()}}


def test_the_committed_reference_is_what_the_generator_prints():
    written = (ROOT / "docs" / "configuration.md").read_text()
    assert written == reference(), "run: .venv/bin/python -m pipeline.config.reference > docs/configuration.md"


@pytest.mark.parametrize(("section", "name"), FIELDS, ids=[f"{section.__name__}.{name}" for section, name in FIELDS])
def test_every_field_has_a_description_and_valid_examples(section, name):
    field = section.model_fields[name]
    assert field.description and len(field.description) > 10
    expected = pydantic.TypeAdapter(Annotated[field.annotation, "rules", *field.metadata])
    for example in field.examples or []:
        expected.validate_python(example)


@pytest.mark.parametrize("part", PARTS, ids=[part.section.__name__ for part in PARTS])
def test_the_example_of_every_section_is_valid_and_is_of_that_section(part):
    values = yaml.safe_load(part.example)
    check_config(joined(SMALL, values), (), "example")
    keys = [place.split("`")[1].split(".")[0] for place in part.places]
    assert part.section is RunConfig or set(keys) & set(values)


def test_every_key_has_a_row_below_its_heading():
    chapters = dict(chapter.split("\n", 1) for chapter in reference().split("\n## ")[1:])
    assert {"`data.split`", "`training.plateau`", "`model`, `evaluation.baseline`"} < set(chapters)
    assert "| `epochs` | whole number, at least 1 | `10` |" in chapters["`training`"]
    assert "| `by` | `order`, `hash` or `time` | `order` |" in chapters["`data.split`"]
    assert "| `labels` | mapping of text to text, not empty | required |" in chapters["`data`"]
    assert "| `warmup_requests` | whole number, at least 1, at most 249 | `10` |" in chapters["`serving`"]
    assert "[section](#trainingplateau) or null" in chapters["`training`"]
    for part in PARTS:
        rows = [line.strip("| ").split(" | ") for line in chapters[part.heading].splitlines() if line.startswith("| `")]
        assert [row[0].strip("`") for row in rows] == list(part.section.model_fields)
        for key, kind, default, _, *example in rows:
            shown = default not in ("`null`", "`[]`", "`{}`", "required")
            assert example or shown or "](#" in kind or key == "`kind`", f"{part.heading}: {key} shows no example"
