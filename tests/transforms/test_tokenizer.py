"""Texts to tokens in a graph, as HuggingFace makes them (golden values: benchmarks/peers/huggingface_tokens.py)."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from ctrpipe.common.errors import InputError
from ctrpipe.transforms.text.word_piece import WordPiece, join_segments
from tests.text_checkpoint import write_checkpoint
from tests.transforms.tokenizers import make_whole, run_in_the_loader

GOLDEN = json.loads((pathlib.Path(__file__).parent / "golden" / "wordpiece.json").read_text())
WORDS = ("dress", "good", "love", "cafe", "naive", "smile", "##es", "σ", "ασοσ", "##ed", "日", "中", "한국어", "😀")
LENGTH = 24


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> WordPiece:
    return WordPiece(write_checkpoint(tmp_path_factory.mktemp("checkpoint"), words=WORDS))


def joined(tokenizer: WordPiece, *texts: list[str | bytes]):
    parts = [tokenizer.tokens(tf.convert_to_tensor(column)) for column in texts]
    special = (tokenizer.special[name] for name in ("classify", "separator", "padding"))
    return join_segments(parts, LENGTH, *special)


def test_one_text_gives_huggingfaces_tokens(tokenizer):
    tokens, segments = joined(tokenizer, [row["texts"][0] for row in GOLDEN])
    for row, found in zip(GOLDEN, tokens.numpy().tolist(), strict=True):
        assert found == row["tokens"], row["texts"][0][:60]
    assert not segments.numpy().any()


def test_two_texts_give_huggingfaces_tokens_and_segments(tokenizer):
    tokens, segments = joined(tokenizer, *([row["texts"][i] for row in GOLDEN] for i in (0, 1)))
    for row, found, kinds in zip(GOLDEN, tokens.numpy().tolist(), segments.numpy().tolist(), strict=True):
        assert (found, kinds) == (row["pair"], row["segments"]), [text[:60] for text in row["texts"]]
    assert tokens.dtype == segments.dtype == tf.int32 and tokens.shape[1] == LENGTH


def test_special_tokens_in_a_text_stay_text(tokenizer):
    special = set(tokenizer.special.values())
    for text in ("[SEP]", "[MASK] [CLS]", "[PAD]", "a[SEP]b"):
        assert not special & set(tokenizer.tokens(tf.constant([text])).flat_values.numpy().tolist()), text


def test_invalid_utf8_is_left_out(tokenizer):
    found, wanted = (tokenizer.tokens(tf.constant([text])).to_list() for text in (b"go\xffod \xc3", "good "))
    assert found == wanted == [[tokenizer.vocabulary.index("good")]]


def test_a_text_of_100_000_characters_is_cut(tokenizer):
    tokens, _ = joined(tokenizer, ["good " * 20_000, "a" * 100_000])
    good, unknown = tokenizer.vocabulary.index("good"), tokenizer.special["unknown"]
    first, last = tokenizer.special["classify"], tokenizer.special["separator"]
    assert tokens.numpy().tolist() == [[first, *[good] * 22, last], [first, unknown, last, *[0] * 21]]


def test_a_cased_tokenizer_keeps_case_and_accents(tmp_path):
    folder = write_checkpoint(tmp_path, words=("Café", "cafe", "Dress"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False, "tokenize_chinese_chars": False}))
    tokenizer = WordPiece(folder)
    words = [
        [word.decode() for word in row if word] for row in tokenizer.words(tf.constant(["Café Dress中"])).to_list()
    ]
    assert words == [["Café", "Dress中"]]
    assert tokenizer.tokens(tf.constant(["Café"])).to_list() == [[tokenizer.vocabulary.index("Café")]]


@pytest.mark.slow
def test_the_graph_runs_in_the_loader_of_tf_serving(tokenizer, tmp_path):
    found = run_in_the_loader(lambda text: joined(tokenizer, text)[0], [row["texts"][0] for row in GOLDEN], tmp_path)
    np.testing.assert_array_equal(found, [row["tokens"] for row in GOLDEN])


# tokenizer.json alone


def test_tokenizer_json_alone_gives_the_same_tokens(tokenizer, tmp_path):
    whole = WordPiece(make_whole(write_checkpoint(tmp_path, words=WORDS)))
    assert (whole.vocabulary, whole.special) == (tokenizer.vocabulary, tokenizer.special)
    texts = tf.constant([text for row in GOLDEN for text in row["texts"]])
    assert whole.tokens(texts).to_list() == tokenizer.tokens(texts).to_list()


@pytest.mark.parametrize(
    ("normalizer", "config", "words"),
    [
        ({"lowercase": False}, None, ["Café", "Dress", "中"]),
        ({"lowercase": False, "handle_chinese_chars": False}, None, ["Café", "Dress中"]),
        ({"strip_accents": False}, None, ["café", "dress", "中"]),
        ({"lowercase": False, "strip_accents": True}, None, ["Cafe", "Dress", "中"]),
        ({"lowercase": False}, {"do_lower_case": True}, ["cafe", "dress", "中"]),
    ],
)
def test_the_normalizers_flags_hold_unless_the_configuration_has_them(tmp_path, normalizer, config, words):
    folder = make_whole(write_checkpoint(tmp_path), normalizer=normalizer)
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (found,) = WordPiece(folder).words(tf.constant(["Café Dress中"])).to_list()
    assert [word.decode() for word in found if word] == words


def test_tokens_that_were_added_stand_behind_the_models(tmp_path):
    folder = write_checkpoint(tmp_path)
    plain = WordPiece(folder).vocabulary
    added = {"id": len(plain), "content": "<mask>", "special": True}
    make_whole(folder, added_tokens=[added])
    (folder / "tokenizer_config.json").write_text(json.dumps({"mask_token": "<mask>"}))
    tokenizer = WordPiece(folder)
    assert tokenizer.vocabulary == [*plain, "<mask>"] and tokenizer.special["mask"] == len(plain)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"type": "Unigram"}}, "model is Unigram, not WordPiece; it belongs to another tokenizer"),
        ({"normalizer": {"type": "Sequence"}}, "normalizer is Sequence, not BertNormalizer"),
        ({"normalizer": None}, "normalizer is None, not BertNormalizer"),
        ({"pre_tokenizer": {"type": "Metaspace"}}, "pre_tokenizer is Metaspace, not BertPreTokenizer"),
        ({"model": {"continuing_subword_prefix": "@@"}}, 'model.continuing_subword_prefix is "@@", not "##"'),
        ({"model": {"max_input_chars_per_word": 50}}, "model.max_input_chars_per_word is 50, not 100"),
        ({"normalizer": {"clean_text": False}}, "normalizer.clean_text is false, not true"),
        ({"model": {"vocab": None}}, "has no model.vocab"),
        ({"model": {"vocab": {"[PAD]": 0, "[UNK]": 2}}}, "its ids are not 0 to 1, each once"),
        ({"model": {"vocab": {"[PAD]": 0}}}, r"tokenizer.json: has no \[UNK\]; it belongs to another tokenizer"),
    ],
)
def test_a_tokenizer_json_of_another_kind_is_one_line(tmp_path, changes, message):
    folder = make_whole(write_checkpoint(tmp_path), **changes)
    with pytest.raises(InputError, match=message):
        WordPiece(folder)


def test_a_folder_that_is_no_checkpoint_is_one_line(tmp_path):
    with pytest.raises(InputError, match=r"vocab.txt: cannot be read \(No such file.*; give the folder"):
        WordPiece(tmp_path)
    folder = write_checkpoint(tmp_path)
    (folder / "tokenizer_config.json").write_text("{")
    with pytest.raises(InputError, match="tokenizer_config.json: is damaged"):
        WordPiece(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"mask_token": {"content": "<mask>"}}))
    with pytest.raises(InputError, match="vocab.txt: has no <mask>; it belongs to another tokenizer"):
        WordPiece(folder)
    (folder / "tokenizer_config.json").write_text("[]")
    with pytest.raises(InputError, match="tokenizer_config.json: is damaged"):
        WordPiece(folder)
    (folder / "tokenizer_config.json").unlink()
    (folder / "vocab.txt").write_bytes(b"\xff")
    with pytest.raises(InputError, match="not UTF-8"):
        WordPiece(folder)
