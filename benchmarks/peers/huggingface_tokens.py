"""Writes the tokens of HuggingFace's tokenizer for texts, for tests/transforms/test_tokenizer.py.

    .peers/huggingface/bin/python benchmarks/peers/huggingface_tokens.py CHECKPOINT TEXTS.json FILE.json

TEXTS is a list of pairs of texts. Runs in its own environment and imports nothing from this project.
"""

import json
import pathlib
import sys

import transformers

LENGTH = 24


def main(checkpoint: str, texts: str, file: str) -> None:
    pairs = json.loads(pathlib.Path(texts).read_text())
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    options = {"max_length": LENGTH, "truncation": True, "padding": "max_length", "split_special_tokens": True}
    single = tokenizer([a for a, _ in pairs], **options)["input_ids"]
    both = tokenizer([a for a, _ in pairs], [b for _, b in pairs], **options)
    kinds = both.get("token_type_ids") or [[0] * LENGTH for _ in pairs]
    rows = [
        json.dumps({"texts": pair, "tokens": one, "pair": two, "segments": kind})
        for pair, one, two, kind in zip(pairs, single, both["input_ids"], kinds, strict=True)
    ]
    pathlib.Path(file).write_text("[\n" + ",\n".join(rows) + "\n]\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
