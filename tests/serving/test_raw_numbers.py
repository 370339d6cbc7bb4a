"""NumBERT reads the numbers of the log: from lines of text to packed tokens and to served probabilities."""

import decimal
import math

import numpy as np
import pyarrow as pa
import pytest
import tensorflow_transform as tft

from ctrpipe.common.processes import Workers
from ctrpipe.models import create
from ctrpipe.models.base.ctr_model import empty_row
from ctrpipe.models.layers.number_tokens import NumberTokens
from ctrpipe.serving.export.export import export
from ctrpipe.serving.loader import Servable
from ctrpipe.transforms.features.packed_files import PackedReader, packed_files
from ctrpipe.transforms.features.preprocessing import feature_map
from ctrpipe.transforms.features.transform import analyze, transform
from ctrpipe.transforms.log.ingest import to_examples
from ctrpipe.transforms.log.payload import payload_files, read_payload
from ctrpipe.transforms.log.raw_arrays import raw_arrays
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.unsplit_log import write_whole_log
from tests.models.small_models import ENCODER
from tests.models.test_text_models import dense, encode, pooled, value

pytestmark = pytest.mark.slow

COLUMNS = ("click", "age", "gain", "count", "rate", "shop", "tags", "hour", "slot", "query")
SPEC = LogSpec.model_validate(
    {
        "data": {"columns": list(COLUMNS), "labels": {"ctr": "click"}},
        "features": [
            {"kind": "numeric", "columns": ["age"], "transform": "min_max", "buckets": 4},
            {"kind": "numeric", "columns": ["slot"], "role": "position"},
            {"kind": "numeric", "columns": ["gain"], "transform": "standardize"},
            {"kind": "categorical", "columns": ["shop"], "top_k": 3},
            {"kind": "numeric", "columns": ["count"], "transform": "quantile_bucketize", "buckets": 2},
            {"kind": "multivalent", "columns": ["tags"], "max_length": 2},
            {"kind": "numeric", "columns": ["rate"], "transform": "quantile_normalize"},
            {"kind": "time", "columns": ["hour"]},
            {"kind": "text", "columns": ["query"], "length": 6, "tokens": "vocabulary", "separator": " "},
        ],
        "raw_numbers": True,
    }
)
# A line's number columns as the log writes them, and what NumBERT is to read.
NUMBERS = {
    "age": ["35", "36", "35.0", "", "0", "250", "7"],
    "gain": ["-1234", "0.1", "1e6", "0.00456", "-0.5", "", "12.34"],
    "count": ["500000", "1000", "999.6", "123456789", "1", "2", ""],
    "rate": ["0.0349", "0", "1", "", "3.4e38", "1e-20", "0.5"],
}
SHOPS = ["b", "a", "c", "a", "", "rare", "a"]  # a, then the later of two equally frequent ones
TAGS = ["x|y", "x", "", "y|x|z", "y", "x|x", "new"]
HOURS = ["26112300", "26112423", "", "26112512", "NA", "26112207", "26112108"]
SLOTS = ["1", "2", "3", "1", "2", "3", "1"]
QUERIES = ["red hat", "red", "", "hat red hat", "hat", "blue", "red red"]


def lines() -> list[list[str]]:
    """The log's lines, as fields of text."""
    columns = [["1", "0"] * 3 + ["1"], *NUMBERS.values(), SHOPS, TAGS, HOURS, SLOTS, QUERIES]
    return [list(line) for line in zip(*columns, strict=True)]


def number_as_words(text: str) -> list[str]:
    """A number of the log in scientific notation, by decimal arithmetic on the log's own text."""
    if not text:
        return ["[UNK]", "[EXP]", "0", "[SEP]"]
    number = decimal.Context(prec=3).create_decimal(text).normalize()
    digits = "".join(map(str, number.as_tuple().digits))
    exponent = number.adjusted() if number else 0
    return [digits, "[-EXP]" if number < 0 else "[EXP]", str(exponent), "[SEP]"]


def id_as_words(value: str, vocabulary: list[str]) -> list[str]:
    if not value:
        return ["[UNK]", "[EXP]", "0"]
    return [str(vocabulary.index(value) + 1 if value in vocabulary else 0), "[EXP]", "0"]


def line_as_words(line: list[str], tags: list[str]) -> list[str]:
    """All features of a line: fields in the configuration's order, then the dense features."""
    of = dict(zip(COLUMNS, line, strict=True))
    words = number_as_words(of["age"])
    words += [*id_as_words(of["shop"], ["a", "rare", "c"]), "[SEP]"]
    words += number_as_words(of["count"])
    values = [each for each in of["tags"].split("|") if each][:2] or [""]
    written = [word for each in values for word in id_as_words(each, tags)]
    words += [*written, *["[PAD]"] * (6 - len(written)), "[SEP]"]
    if of["hour"] in ("", "NA"):
        words += ["[UNK]", "[EXP]", "0", "[SEP]"] * 3
    else:
        hour, weekday = int(of["hour"][6:]), (int(of["hour"][4:6]) - 23) % 7  # 2026-11-23 is a Monday
        for part in (hour, weekday, int(weekday >= 5)):
            words += [str(part), "[EXP]", "1" if part > 9 else "0", "[SEP]"]
    return words + number_as_words(of["gain"]) + number_as_words(of["rate"])


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The model as Keras has it, its version's folder, its feature map, and the log as payload and as packed rows."""
    folder = tmp_path_factory.mktemp("raw_numbers")
    (folder / "log.tsv").write_text("".join("\t".join(line) + "\n" for line in lines()))
    (folder / "payload").mkdir()
    assert write_whole_log(SPEC, [str(folder / "log.tsv")], True, folder / "payload", Workers(1)).rejected == 0
    analyze(SPEC, payload_files(folder / "payload"), folder / "graph", Workers(1))
    transform(SPEC, folder / "graph", {"test": (folder / "payload", folder / "packed")}, 1, Workers(1))
    ((packed, _),) = list(PackedReader(packed_files(folder / "packed"), 100))
    graph = tft.TFTransformOutput(str(folder / "graph"))
    data = feature_map(SPEC, graph)
    model = create("numbert", data, **{**ENCODER, "encoder_positions": 60})
    model(empty_row(data))
    random = np.random.default_rng(1)
    for weight in model.trainable_variables:
        weight.assign(random.normal(scale=0.4, size=weight.shape))
    rows = next(read_payload(payload_files(folder / "payload")))
    export(model, graph, SPEC, data, rows.slice(0, 2), folder / "1", {})
    return model, folder / "1", data, rows, packed


def tokens_of(words: list[str], data) -> list[int]:
    text = data.text
    special = {"[PAD]": text.padding_id, "[UNK]": text.unknown_id, "[SEP]": text.separator_id}
    special |= {"[EXP]": text.vocabulary_size, "[-EXP]": text.vocabulary_size + 1}
    after = text.vocabulary_size + 1  # -1 to -38 follow, then 0 to 999
    return [
        special[word] if word in special else after + (-int(word) if int(word) < 0 else 39 + int(word))
        for word in words
    ]


def tags_in_order() -> list[str]:
    """The tags by descending count, then descending bytes, as a vocabulary has them."""
    every = [tag for text in TAGS for tag in text.split("|") if tag]
    return sorted(set(every), key=lambda tag: (every.count(tag), tag), reverse=True)


def test_the_packed_rows_become_the_words_of_the_log(served):
    model, _, data, _, packed = served
    assert data.numbers == ("age", "gain", "count", "rate")  # a position is no feature
    tokens = np.asarray(NumberTokens(data)(packed))
    expected = [tokens_of(line_as_words(line, tags_in_order()), data) for line in lines()]
    np.testing.assert_array_equal(tokens, expected)
    assert line_as_words(lines()[0], tags_in_order())[:4] == ["35", "[EXP]", "1", "[SEP]"]


def test_the_served_probability_is_that_of_the_log_s_words(served):
    model, version, data, rows, packed = served
    expected = []
    for index, line in enumerate(lines()):
        numbers = tokens_of(line_as_words(line, tags_in_order()), data)
        tokens = np.array([*packed["tokens"][index], *numbers])
        states = encode(model.encoder, tokens, [*packed["segments"][index], *[1] * len(numbers)])
        place = data.fields[1]
        assert place.role == "position"
        logit = dense(model.head.logits, pooled(model, states))
        logit = logit + value(model.table.table)[packed["ids"][index, 1]] @ value(model.position.kernel)
        expected.append(1 / (1 + math.exp(-logit[0])))
    assert np.ptp(expected) > 0.02
    features = rows.select(list(SPEC.feature_columns))
    inputs = {
        "serving_raw": raw_arrays(rows, SPEC),
        "serving_default": {
            "examples": np.array(to_examples(pa.RecordBatch.from_struct_array(features.to_struct_array())), object)
        },
        "serving_packed": packed,
    }
    servable = Servable(version)
    try:
        answers = {name: servable.run(name, each)["ctr"] for name, each in inputs.items()}
        # The text holds the features of a row, so that candidates share none.
        assert SPEC.candidate_columns and not {"serving_candidates", "serving_candidates_packed"} & {
            *servable.signatures
        }
    finally:
        servable.close()
    for answer in answers.values():
        np.testing.assert_allclose(answer, expected, rtol=0, atol=2e-6)
        np.testing.assert_allclose(answer, answers["serving_packed"], rtol=0, atol=1e-6)


def test_a_log_packs_numbers_only_where_a_model_asks_for_them():
    assert SPEC.model_copy(update={"raw_numbers": False}).written_columns == []
