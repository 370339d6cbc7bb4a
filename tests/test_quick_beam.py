"""What is remembered of Beam's pipelines is what Beam finds."""

import sys

import apache_beam as beam
import pytest
from apache_beam.options import pipeline_options
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, SetupOptions
from apache_beam.transforms import core

from tests.quick_beam import remembered_arguments, remembered_options


class Counts(beam.DoFn):
    def process(self, element, window=beam.DoFn.WindowParam, *, by=2):
        yield element * by

    def finish_bundle(self):
        pass


def test_arguments_are_those_of_the_function_alone_and_bound_and_asked_for_once():
    asked = []

    def find(function):
        asked.append(function)
        return core.get_function_args_defaults(function)

    remembered = remembered_arguments(find)
    functions = [Counts().process, Counts.process, Counts().finish_bundle, Counts.finish_bundle, len]
    for function in functions * 2:
        names, defaults = remembered(function)
        assert (names, defaults) == core.get_function_args_defaults(function)
        names.clear(), defaults.clear()  # of the caller alone
    assert remembered(Counts().process)[0] == ["element", "window"]
    assert asked == [*functions, len]


class Own(PipelineOptions):
    @classmethod
    def _add_argparse_args(cls, parser):
        parser.add_argument("--many", action="append", default=[])
        parser.add_argument("--size", type=int, default=3)


@pytest.fixture
def options(monkeypatch):
    parsed = []
    parse = pipeline_options._BeamArgumentParser.parse_known_args

    def counted(parser, flags):
        parsed.append(flags)
        return parse(parser, flags)

    monkeypatch.setattr(pipeline_options._BeamArgumentParser, "parse_known_args", counted)
    monkeypatch.setattr(PipelineOptions, "__init__", remembered_options(PipelineOptions.__init__))
    return parsed


def test_flags_are_parsed_once_for_a_class_and_the_options_are_of_each_alone(options):
    flags = ["--many=a", "--size=7", "--save_main_session"]
    first, second = Own(list(flags)), Own(list(flags))
    first.many.append("b")
    first.size = 9
    assert (first.many, first.size, second.many, second.size) == (["a", "b"], 9, ["a"], 7)
    assert second.view_as(SetupOptions).save_main_session and not Own([]).view_as(SetupOptions).save_main_session
    assert second.view_as(Own).size == 7 and first.view_as(DirectOptions).view_as(Own).size == 9
    asked = len(options)
    assert Own(flags, size=5).size == 5 and Own(flags).size == 7
    assert first.view_as(SetupOptions).save_main_session and len(options) == asked


def test_without_flags_they_are_those_of_the_command(options, monkeypatch):
    for arguments, size in (("--size=1",), 1), (("--size=2",), 2), ((), 3):
        monkeypatch.setattr(sys, "argv", ["program", *arguments])
        assert Own().size == size
    with pytest.raises(ValueError, match="not a single string"):
        Own("--size=1")


@pytest.mark.slow
def test_a_pipeline_gives_the_same(options):
    from apache_beam.testing.util import assert_that, equal_to

    for _ in range(2):
        with beam.Pipeline(options=PipelineOptions(["--runner=DirectRunner"])) as pipeline:
            found = pipeline | beam.Create([1, 2]) | beam.ParDo(Counts(), by=3) | beam.Map(lambda x, y=1: x + y, y=4)
            assert_that(found, equal_to([7, 10]))
