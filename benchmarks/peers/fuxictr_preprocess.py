"""Preprocesses a log in Criteo's format with FuxiCTR's own recipe for Criteo.

    python fuxictr_preprocess.py '{"files": {"train": ..., "valid": ..., "test": ...}, "folder": ..., "min_count": 10}'

The files have a header line; FuxiCTR writes to `folder`. Prints {"vocabularies": <its JSON file of vocabularies>,
"version": <FuxiCTR's version>}.
"""

import json
import pathlib
import sys

import fuxictr
from fuxictr.datasets.criteo import CustomizedFeatureProcessor
from fuxictr.preprocess import build_dataset

DATASET = "log"


def columns() -> list[dict]:
    numbers = [f"I{index}" for index in range(1, 14)]
    values = [f"C{index}" for index in range(1, 27)]
    shared = {"active": True, "type": "categorical"}
    return [
        {"name": numbers, "dtype": "float", "fill_na": 0, "preprocess": "convert_to_bucket", **shared},
        {"name": values, "dtype": "str", "fill_na": "", **shared},
    ]


def main(request: dict) -> dict:
    label = {"name": "label", "dtype": "float"}
    processor = CustomizedFeatureProcessor(columns(), label, DATASET, request["folder"])
    files = {f"{name}_data": path for name, path in request["files"].items()}
    build_dataset(processor, **files, min_categr_count=request["min_count"], data_format="csv", sep="\t")
    return {"vocabularies": str(pathlib.Path(request["folder"]) / DATASET / "feature_vocab.json")}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1])) | {"version": fuxictr.__version__}))
