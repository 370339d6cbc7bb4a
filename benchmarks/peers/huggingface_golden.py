"""Writes the outputs of HuggingFace's PyTorch model of a checkpoint, for tests/models/test_text_checkpoint.py.

    .peers/huggingface/bin/python benchmarks/peers/huggingface_golden.py CHECKPOINT FILE.npz

Runs in its own environment (benchmarks/peers/huggingface.txt) and imports nothing from this project.
"""

import sys

import numpy as np
import torch
import transformers


def main(checkpoint: str, file: str) -> None:
    model = transformers.AutoModel.from_pretrained(checkpoint, attn_implementation="eager").eval()
    random = np.random.default_rng(0)
    mask = np.arange(17) < np.array([[17], [9], [3]])
    tokens = np.where(mask, random.integers(5, model.config.vocab_size, mask.shape), model.config.pad_token_id)
    segments = mask & (np.arange(17) > 5) & (model.config.type_vocab_size > 1)
    with torch.no_grad():
        output = model(
            torch.tensor(tokens),
            attention_mask=torch.tensor(mask.astype(np.int64)),
            token_type_ids=torch.tensor(segments.astype(np.int64)),
            output_hidden_states=True,
        )
    np.savez_compressed(
        file,
        tokens=tokens.astype(np.int32),
        segments=segments.astype(np.int32),
        states=torch.stack(output.hidden_states).numpy(),
        pooled=output.pooler_output.numpy(),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
