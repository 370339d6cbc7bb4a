"""Texts through analysis, the graph and the packed files."""

import json
import pathlib

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from pydantic import ValidationError
from sklearn.feature_extraction.text import CountVectorizer

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.models.base.feature_map import Text as TextMap
from ctrpipe.transforms.features.analyzers import LogCounter, merge
from ctrpipe.transforms.features.packed_files import PackedReader, packed_files
from ctrpipe.transforms.features.preprocessing import feature_map, layout
from ctrpipe.transforms.features.transform import analyze, load_graph, transform
from ctrpipe.transforms.log.payload import PayloadWriter, payload_files, payload_schema
from ctrpipe.transforms.log.raw_arrays import raw_arrays
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.text.byte_pairs import BytePairs
from ctrpipe.transforms.text.checkpoint import _fetch, checkpoint_fingerprint, checkpoint_revision, find_checkpoint
from ctrpipe.transforms.text.tokenize import BYTES_A_TOKEN, LISTED_A_TOKEN, SPECIAL, read_tokenizer, text_map, tokenize
from ctrpipe.transforms.text.word_piece import WordPiece, join_segments
from tests.text_checkpoint import write_checkpoint

LENGTH = 10
WORDS = ("red", "dress", "hat", "cheap", "warm")
# A text of 100,000 characters, one that is missing, pairs that share one side, and one pair twice.
QUERIES = [b"red dress", b"hat", None, b"hat", b"red dress", b"", b"caf\xc3\xa9 \xf0\x9f\x98\x80", b"hat", b"dress"]
TITLES = [b"cheap hat", b"warm", b"warm", None, b"red", None, b"[SEP] 42", b"warm", b"red " * 25_000]


def spec_of(**text) -> LogSpec:
    return LogSpec.model_validate(
        {
            "data": {"columns": ["click", "price", "query", "title"], "labels": {"ctr": "click"}},
            "features": [
                {"kind": "numeric", "columns": ["price"]},
                {"kind": "text", "columns": ["query", "title"], "length": LENGTH, **text},
            ],
        }
    )


def rows(queries=QUERIES, titles=TITLES) -> pa.RecordBatch:
    count = len(queries)
    return pa.RecordBatch.from_pydict(
        {
            "price": pa.array([float(index % 3) for index in range(count)], pa.float32()),
            "query": pa.array(queries, pa.binary()),
            "title": pa.array(titles, pa.binary()),
            "click": pa.array([float(index % 2) for index in range(count)], pa.float32()),
        }
    )


def packed(spec: LogSpec, folder: pathlib.Path) -> dict[str, np.ndarray]:
    """The rows as they are packed, in the order of the log; the graph stays in `folder`/graph."""
    for split in ("train", "validation"):
        (folder / split).mkdir()
        with PayloadWriter(folder / split, "part", payload_schema(spec)) as writer:
            writer.write(rows())
    here = Workers(processes=1)
    analyze(spec, payload_files(folder / "train"), folder / "graph", here)
    transform(spec, folder / "graph", {"validation": (folder / "validation", folder / "packed")}, 1, here)
    ((inputs, label),) = list(PackedReader(packed_files(folder / "packed"), 100))
    return {**inputs, "label": label}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "tokenizer"), [("bert", WordPiece), ("roberta", BytePairs)])
def test_packed_tokens_are_the_tokenizers_row_by_row(tmp_path, kind, tokenizer):
    folder = write_checkpoint(tmp_path / "checkpoint", kind, WORDS)
    spec = spec_of(encoder=str(folder))
    found = packed(spec, tmp_path)
    own = tokenizer(folder)
    parts = [own.tokens(tf.constant([value or b"" for value in column])) for column in (QUERIES, TITLES)]
    special = [own.special[name] for name in ("classify", "separator", "padding")]
    tokens, segments = join_segments(parts, LENGTH, *special, between=1 if kind == "bert" else 2)
    np.testing.assert_array_equal(found["tokens"], tokens)
    np.testing.assert_array_equal(found["segments"], segments if kind == "bert" else np.zeros_like(segments))
    assert found["tokens"].dtype == found["segments"].dtype == np.int32 and found["ids"].shape == (9, 1)
    ends = [own.special["separator"]] * (2 if kind == "bert" else 3)
    assert [token for token in found["tokens"][5] if token != special[2]] == [special[0], *ends]  # both are missing
    text = feature_map(spec, tft.TFTransformOutput(str(tmp_path / "graph"))).text
    assert text == text_map(spec.text) and text.vocabulary_size == len(own.vocabulary)
    tokens_of_numbers = {number: own.vocabulary[token] for number, token in enumerate(text.number_ids) if token >= 0}
    assert tokens_of_numbers == {number: str(number) for number in range(1000) if str(number) in own.vocabulary}
    assert len(text.number_ids) == 1000 and set(range(100)) <= tokens_of_numbers.keys()


@pytest.mark.slow
def test_the_graph_by_rows_gives_what_packing_by_different_rows_gives(tmp_path):
    spec = spec_of(encoder=str(write_checkpoint(tmp_path / "checkpoint", words=WORDS)))
    found = packed(spec, tmp_path)
    by_rows = load_graph(tmp_path / "graph")(raw_arrays(rows(), spec, labels=True))
    for name in ("ids", "tokens", "segments", "label"):
        np.testing.assert_array_equal(found[name], by_rows[name])


@pytest.mark.slow
def test_token_lists_have_a_vocabulary_behind_the_special_tokens(tmp_path):
    spec = spec_of(tokens="vocabulary", separator=" ", top_k=3)
    found = packed(spec, tmp_path)
    text = feature_map(spec, tft.TFTransformOutput(str(tmp_path / "graph"))).text
    assert text == TextMap(LENGTH, len(SPECIAL) + 3, *range(len(SPECIAL)))
    # red comes 25,003 times, hat 4 times, warm and dress 3 times: of equal counts the greater bytes come first.
    red, hat, warm, unknown, classify, separator = 5, 6, 7, 1, 2, 3
    assert found["tokens"][0, :7].tolist() == [classify, red, unknown, separator, unknown, hat, separator]
    assert found["segments"][0].tolist() == [0, 0, 0, 0, 1, 1, 1, 0, 0, 0]
    assert found["tokens"][2, :4].tolist() == [classify, separator, warm, separator]
    assert found["tokens"][8].tolist() == [classify, unknown, separator, *[red] * 6, separator]


def test_garbage_in_a_token_list_is_no_token_or_an_unknown_one(tmp_path):
    spec = spec_of(tokens="vocabulary", separator="|")
    batch = rows([b"1||2|", b"|", b"|||", b"1| 2"], [b"1", b"", None, b"\xc3\xa9|1"])
    counter = LogCounter.of_log(spec)
    counter.add({name: batch[name] for name in counter.columns})
    words = [word.decode() for word in counter.summary().tokens(spec.text).to_pylist()]
    assert sorted(words) == [" 2", "1", "2", "é"] and words[0] == "1"


@pytest.mark.slow
def test_the_graph_makes_no_token_or_an_unknown_one_of_garbage_in_a_token_list(tmp_path):
    spec = spec_of(tokens="vocabulary", separator=" ", top_k=3)
    packed(spec, tmp_path)
    red, hat, unknown, classify, separator = 5, 6, 1, 2, 3
    queries = [b"  red   hat ", b"\xff\xfe red", b"red\0 red", b"|||", b"   "]
    batch = rows(queries, [None] * len(queries))
    found = load_graph(tmp_path / "graph")(raw_arrays(batch, spec, labels=True))["tokens"]
    words = [[token for token in row if token not in (0, classify, separator)] for row in np.asarray(found).tolist()]
    assert words == [[red, hat], [unknown, red], [unknown, red], [unknown], []]


def by_hand(texts: list[str]) -> dict[str, float]:
    """TF x IDF of each token over all texts that are not empty."""
    counts = CountVectorizer(analyzer=str.split, lowercase=False)
    matrix = counts.fit_transform([text for text in texts if text]).toarray()
    score = matrix.sum(axis=0) * np.log(len(matrix) / (matrix > 0).sum(axis=0))
    return dict(zip(counts.get_feature_names_out(), score, strict=True))


@pytest.mark.parametrize("parts", [1, 3])
def test_tokens_are_ranked_by_tf_idf(parts):
    random = np.random.default_rng(3)
    vocabulary = [f"w{index}" for index in range(40)]
    weights = np.arange(1, 41) / np.arange(1, 41).sum()
    texts = [
        [" ".join(random.choice(vocabulary, size, p=weights)) for size in random.integers(0, 9, 300)] for _ in "ab"
    ]
    spec = spec_of(tokens="vocabulary", separator=" ", rank_by="tf_idf", top_k=25)
    summaries = []
    for part in np.array_split(np.arange(300), parts):
        counter = LogCounter.of_log(spec)
        columns = ([texts[side][row].encode() or None for row in part] for side in (0, 1))
        batch = rows(*columns)
        counter.add({name: batch[name] for name in counter.columns})
        summaries.append(counter.summary())
    found = [token.decode() for token in merge(summaries).tokens(spec.text).to_pylist()]
    scores = by_hand(texts[0] + texts[1])
    assert found == sorted(scores, key=lambda token: (scores[token], token), reverse=True)[:25]
    assert (
        found != sorted(scores, key=lambda token: sum(text.split().count(token) for text in texts[0] + texts[1]))[:25]
    )


def test_a_rare_token_is_left_out():
    spec = spec_of(tokens="vocabulary", separator=" ", min_count=2)
    counter = LogCounter.of_log(spec)
    batch = rows([b"a b", b"a"], [b"b c", None])
    counter.add({name: batch[name] for name in counter.columns})
    assert counter.summary().tokens(spec.text).to_pylist() == [b"b", b"a"]


@pytest.mark.slow
def test_an_empty_vocabulary_names_the_column(tmp_path):
    spec = spec_of(tokens="vocabulary", separator=" ", min_count=10**6)
    packed(spec, tmp_path)
    with pytest.raises(InputError, match="the vocabulary of query has no entry"):
        feature_map(spec, tft.TFTransformOutput(str(tmp_path / "graph")))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ({}, "encoder: random has no tokenizer; give a checkpoint, or tokens: vocabulary"),
        ({"encoder": "x", "top_k": 3}, "separator, top_k, min_count and rank_by apply to tokens: vocabulary"),
        ({"tokens": "vocabulary"}, "tokens: vocabulary needs separator"),
        ({"encoder": "x", "columns": ["query", "title", "price"]}, "one or two columns, not 3"),
        ({"encoder": "x", "length": 3}, "greater than or equal to 4"),
    ],
)
def test_keys_that_do_not_go_together_are_a_mistake(text, message):
    with pytest.raises(ValidationError, match=message):
        spec_of(**text)


def test_there_is_one_text():
    features = [{"kind": "text", "columns": [name], "length": 8, "encoder": "x"} for name in ("query", "title")]
    with pytest.raises(ValidationError, match="two of kind text"):
        LogSpec.model_validate({**spec_of(encoder="x").model_dump(mode="json"), "features": features})


def changed(folder: pathlib.Path, **changes) -> pathlib.Path:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    return folder


def test_a_folder_that_is_no_checkpoint_is_one_line(tmp_path):
    folder = write_checkpoint(tmp_path / "checkpoint")
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    with pytest.raises(InputError, match=f"vocab_size is {size - 1}, but the tokenizer has {size} tokens"):
        read_tokenizer(str(changed(folder, vocab_size=size - 1)))
    with pytest.raises(InputError, match=f"vocab_size is {size + 5000}, but"):
        read_tokenizer(str(changed(folder, vocab_size=size + 5000)))
    assert read_tokenizer(str(changed(folder, vocab_size=size + 60)))[1] == size + 60  # padded
    with pytest.raises(InputError, match="model_type should be one of bert, roberta. Received: model_type='gpt2'"):
        read_tokenizer(str(changed(folder, model_type="gpt2")))
    with pytest.raises(InputError, match="vocab.json: cannot be read"):
        read_tokenizer(str(changed(folder, model_type="roberta")))
    (folder / "config.json").unlink()
    with pytest.raises(InputError, match=r"config.json: cannot be read \(No such file"):
        read_tokenizer(str(folder))
    with pytest.raises(InputError, match="nowhere: no such folder"):
        read_tokenizer(str(tmp_path / "nowhere"))


def test_a_checkpoint_of_the_hub_is_fetched_or_named(tmp_path, monkeypatch):
    asked = []

    def fetch(name, revision, allow_patterns):
        asked.append((name, revision))
        return tmp_path / name / "snapshots" / ("c0ffee" * 7)[:40]

    hub = type("hub", (), {"snapshot_download": staticmethod(fetch)})
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", hub)
    _fetch.cache_clear()
    for _ in range(2):  # a branch that moves during a run is none
        assert find_checkpoint("hf://owner/name") == tmp_path / "owner/name/snapshots" / ("c0ffee" * 7)[:40]
    assert checkpoint_revision("hf://owner/name@v1.2") == ("c0ffee" * 7)[:40]
    assert asked == [("owner/name", None), ("owner/name", "v1.2")]
    assert checkpoint_revision("random") is None
    for wrong in ("hf://name", "hf://owner/name@", "hf://owner/name/more", "hf://@main"):
        with pytest.raises(InputError, match=f"{wrong}: expected hf://owner/name or hf://owner/name@revision"):
            find_checkpoint(wrong)
    _fetch.cache_clear()

    def fail(name, revision, allow_patterns):
        raise OSError("no\nroute")

    hub.snapshot_download = staticmethod(fail)
    with pytest.raises(InputError, match=r"hf://owner/name cannot be fetched \(no route\)"):
        find_checkpoint("hf://owner/name")
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r"needs the extra hub .*pip install 'ctrpipe\[hub\]', or give a local folder"):
        find_checkpoint("hf://owner/name")


def test_another_checkpoint_has_another_fingerprint(tmp_path):
    first, same = (write_checkpoint(tmp_path / name) for name in ("first", "same"))
    other = write_checkpoint(tmp_path / "other", seed=2)
    assert checkpoint_fingerprint(str(first)) == checkpoint_fingerprint(str(same))
    assert checkpoint_fingerprint(str(first)) != checkpoint_fingerprint(str(other))
    assert checkpoint_fingerprint("random") == ""


def test_a_layout_counts_the_special_tokens():
    spec = spec_of(tokens="vocabulary", separator=" ")
    assert layout(spec, lambda column, feature: 7).text.vocabulary_size == 7 + len(SPECIAL)


@pytest.mark.parametrize(("kind", "tokenizer"), [("bert", WordPiece), ("roberta", BytePairs)])
def test_of_a_text_only_the_beginning_is_read(tmp_path, kind, tokenizer):
    folder = write_checkpoint(tmp_path, kind, WORDS)
    spec = spec_of(encoder=str(folder))
    most, asked = LENGTH * BYTES_A_TOKEN, []
    read = tokenizer.tokens
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            tokenizer, "tokens", lambda self, texts: asked.append(texts.numpy().tolist()) or read(self, texts)
        )
        texts = ["!" * 1_000_000, "dress " * (most // 6)]
        found, _ = tokenize([tf.constant(texts), tf.constant(["", "good"])], spec.text, lambda tokens: tokens)
    assert [len(text) for text in asked[0]] == [most, len(texts[1])]
    own = tokenizer(folder)
    special = [own.special[name] for name in ("classify", "separator", "padding")]
    whole = [own.tokens(tf.constant(column)) for column in ([text[:3000] for text in texts], ["", "good"])]
    np.testing.assert_array_equal(found, join_segments(whole, LENGTH, *special, between=own.between)[0])


def test_of_a_list_of_tokens_only_the_first_are_looked_up():
    spec, asked = spec_of(tokens="vocabulary", separator=" "), []

    def look_up(tokens: tf.Tensor) -> tf.Tensor:
        asked.append(len(tokens))
        return tf.zeros_like(tokens, tf.int64)

    texts = ["  ".join(["a"] * 100_000), "a b"]
    tokens, _ = tokenize([tf.constant(texts), tf.constant(["", ""])], spec.text, look_up)
    assert asked == [LENGTH * LISTED_A_TOKEN + 2, 0]
    assert (tokens[0] == len(SPECIAL)).numpy().sum() == LENGTH - 3
