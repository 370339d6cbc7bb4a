"""RoBERTa's tokens in a graph, as HuggingFace makes them (golden values: benchmarks/peers/huggingface_tokens.py)."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from ctrpipe.common.errors import InputError
from ctrpipe.transforms.text.byte_pairs import LONGEST_WORD, BytePairs
from ctrpipe.transforms.text.word_piece import join_segments
from tests.text_checkpoint import write_checkpoint
from tests.transforms.tokenizers import make_whole, run_in_the_loader

GOLDEN = json.loads((pathlib.Path(__file__).parent / "golden" / "byte_pairs.json").read_text())
WORDS = ("dress", "good", "love", "cafe", "smile", "text", "the", "one", "two")
LENGTH = 24


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> BytePairs:
    return BytePairs(write_checkpoint(tmp_path_factory.mktemp("checkpoint"), "roberta", WORDS))


def joined(tokenizer: BytePairs, *texts):
    parts = [tokenizer.tokens(tf.convert_to_tensor(column)) for column in texts]
    special = (tokenizer.special[name] for name in ("classify", "separator", "padding"))
    return join_segments(parts, LENGTH, *special, tokenizer.between)[0]


def test_one_text_gives_huggingfaces_tokens(tokenizer):
    tokens = joined(tokenizer, [row["texts"][0] for row in GOLDEN])
    for row, found in zip(GOLDEN, tokens.numpy().tolist(), strict=True):
        assert found == row["tokens"], row["texts"][0][:60]


def test_two_texts_give_huggingfaces_tokens(tokenizer):
    tokens = joined(tokenizer, *([row["texts"][i] for row in GOLDEN] for i in (0, 1)))
    for row, found in zip(GOLDEN, tokens.numpy().tolist(), strict=True):
        assert found == row["pair"], [text[:60] for text in row["texts"]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a  b", ["a", " ", " b"]),
        ("a \n b", ["a", " \n", " b"]),
        ("a\n\nb", ["a", "\n", "\n", "b"]),
        ("a   ", ["a", "   "]),
        ("  ", ["  "]),
        ("\u3000a\u00a0\u2028b", ["\u3000", "a", "\u00a0", "\u2028", "b"]),
        ("don't you'll", ["don", "'t", " you", "'ll"]),
        ("x 12%$ é½", ["x", " 12", "%$", " é", "½"]),
        ("a\0b", ["a", "\0", "b"]),
        ("\ufffd \ue000", ["\ufffd", " \ue000"]),
    ],
)
def test_white_space_before_a_word_is_divided_as_by_gpt2s_lookahead(tokenizer, text, words):
    (found,) = tokenizer.words(tf.constant([text])).to_list()
    assert [word.decode() for word in found] == words


def test_the_pair_of_the_lowest_rank_is_merged_first_and_all_its_places_from_the_left(tmp_path):
    folder = write_checkpoint(tmp_path, "roberta")
    vocabulary = json.loads((folder / "vocab.json").read_text())
    for token in ("bc", "ab", "aa", "aaa", "bcd"):
        vocabulary[token] = len(vocabulary)
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\nb c\na b\na a\naa a\nbc d\n")
    tokenizer = BytePairs(folder)
    texts = {"abc": ["a", "bc"], "abab": ["ab", "ab"], "aaaaa": ["aa", "aaa"], "abcd": ["a", "bcd"], "": []}
    found = tokenizer.tokens(tf.constant(list(texts))).to_list()
    assert [[tokenizer.vocabulary[token] for token in row] for row in found] == list(texts.values())


def test_special_tokens_in_a_text_stay_text(tokenizer):
    special = set(tokenizer.special.values())
    for text in ("<s>", "<mask> </s>", "<pad>", "a<unk>b"):
        assert not special & set(tokenizer.tokens(tf.constant([text])).flat_values.numpy().tolist()), text


def test_texts_without_words_and_invalid_utf8_have_tokens_of_what_is_left(tokenizer):
    found = tokenizer.tokens(tf.constant([b"", b"\xff\xfe", b"go\xffod"])).to_list()
    good = tokenizer.tokens(tf.constant(["good"])).to_list()
    assert found == [[], [], *good] and len(good[0]) == 1
    assert tokenizer.tokens(tf.constant([], tf.string)).to_list() == []


def test_a_word_of_100_000_characters_is_merged_in_parts(tokenizer):
    (found,) = tokenizer.tokens(tf.constant(["good" * 25_000])).to_list()
    assert set(found) == {tokenizer.vocabulary.index("good")} and LONGEST_WORD % 4 == 0


def test_a_space_in_front_where_the_checkpoint_asks_for_one(tmp_path):
    folder = write_checkpoint(tmp_path, "roberta", WORDS)
    plain = BytePairs(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"add_prefix_space": True}))
    spaced = BytePairs(folder)
    texts, wanted = tf.constant(["good", " good", ""]), tf.constant([" good", " good", ""])
    assert spaced.tokens(texts).to_list() == plain.tokens(wanted).to_list()


@pytest.mark.slow
def test_the_graph_runs_in_the_loader_of_tf_serving(tokenizer, tmp_path):
    found = run_in_the_loader(lambda text: joined(tokenizer, text), [row["texts"][0] for row in GOLDEN], tmp_path)
    np.testing.assert_array_equal(found, [row["tokens"] for row in GOLDEN])


@pytest.mark.parametrize("listed", [True, False])
def test_tokenizer_json_alone_gives_the_same_tokens(tokenizer, tmp_path, listed):
    whole = BytePairs(make_whole(write_checkpoint(tmp_path, "roberta", WORDS), listed))
    assert (whole.vocabulary, whole.special) == (tokenizer.vocabulary, tokenizer.special)
    texts = tf.constant([text for row in GOLDEN for text in row["texts"]])
    assert whole.tokens(texts).to_list() == tokenizer.tokens(texts).to_list()


def test_tokenizer_json_asks_for_a_space_in_front(tokenizer, tmp_path):
    folder = write_checkpoint(tmp_path, "roberta", WORDS)
    spaced = BytePairs(make_whole(folder, pre_tokenizer={"add_prefix_space": True}))
    assert spaced.tokens(tf.constant(["good"])).to_list() == tokenizer.tokens(tf.constant([" good"])).to_list()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"type": "WordPiece"}}, "model is WordPiece, not BPE; it belongs to another tokenizer"),
        ({"normalizer": {"type": "NFC"}}, "normalizer is NFC, not None"),
        ({"pre_tokenizer": {"type": "Split"}}, "pre_tokenizer is Split, not ByteLevel"),
        ({"pre_tokenizer": {"use_regex": False}}, "pre_tokenizer.use_regex is false, not true"),
        ({"model": {"dropout": 0.1}}, "model.dropout is 0.1, not null"),
        ({"model": {"end_of_word_suffix": "</w>"}}, 'model.end_of_word_suffix is "</w>", not ""'),
        ({"model": {"byte_fallback": True}}, "model.byte_fallback is true, not false"),
        ({"model": {"merges": [["q", "zz"]]}}, "tokenizer.json: does not merge tokens of tokenizer.json"),
        ({"model": {"merges": []}}, "tokenizer.json: does not merge tokens"),
    ],
)
def test_a_tokenizer_json_of_another_kind_is_one_line(tmp_path, changes, message):
    folder = make_whole(write_checkpoint(tmp_path, "roberta"), **changes)
    with pytest.raises(InputError, match=message):
        BytePairs(folder)


def test_files_of_another_tokenizer_are_one_line(tmp_path):
    with pytest.raises(InputError, match="vocab.json: cannot be read"):
        BytePairs(tmp_path)
    folder = write_checkpoint(tmp_path, "roberta")
    merges = (folder / "merges.txt").read_text()
    (folder / "merges.txt").write_text(merges + "q zz\n")
    with pytest.raises(InputError, match="merges.txt: does not merge tokens of vocab.json"):
        BytePairs(folder)
    (folder / "merges.txt").unlink()
    with pytest.raises(InputError, match=r"merges.txt: cannot be read \(No such file"):
        BytePairs(folder)
    (folder / "merges.txt").write_text(merges)
    vocabulary = json.loads((folder / "vocab.json").read_text())
    (folder / "vocab.json").write_text(json.dumps({**vocabulary, "</s>": 0}))
    with pytest.raises(InputError, match="its ids are not 0 to"):
        BytePairs(folder)
    del vocabulary["<mask>"]
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    with pytest.raises(InputError, match="vocab.json: has no <mask>; it belongs to another tokenizer"):
        BytePairs(folder)
