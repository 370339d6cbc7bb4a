"""The published data sets that `ctrpipe init --dataset` knows.

A new one is a file of this folder, with a KnownSet that SETS names.
"""

import math
import pathlib
from collections.abc import Sequence
from typing import Any

import yaml

from ctrpipe.common.libraries import openmp_missing
from ctrpipe.pipeline.config.load import load_config, read_yaml
from ctrpipe.pipeline.draft.recipe import LogSize, count_rows, settings
from ctrpipe.pipeline.draft.sets.amazon import AMAZON
from ctrpipe.pipeline.draft.sets.avazu import AVAZU
from ctrpipe.pipeline.draft.sets.criteo import CRITEO, CRITEO_1TB
from ctrpipe.pipeline.draft.sets.folder import KnownSet, SetFolder
from ctrpipe.pipeline.draft.sets.kddcup2012 import KDDCUP2012
from ctrpipe.pipeline.draft.sets.kuairand import KUAIRAND
from ctrpipe.pipeline.draft.sets.mind import MIND, configuration
from ctrpipe.pipeline.draft.sets.movielens import MOVIELENS
from ctrpipe.pipeline.draft.sets.taobao import TAOBAO
from ctrpipe.transforms.log.sample import read_sample

_RATE = 0.1  # of clicks; it decides nothing but gates, which known sets go without
_FEWEST_IN_BATCH, _MOST_IN_BATCH = 64, 1024  # rows
_STEPS = 32  # of an epoch, about, where there are fewer rows than fill this many of the largest batches
SETS: dict[str, KnownSet] = {
    "criteo": CRITEO,
    "criteo_1tb": CRITEO_1TB,
    "avazu": AVAZU,
    "kddcup2012": KDDCUP2012,
    "movielens": MOVIELENS,
    "mind": MIND,
    "taobao": TAOBAO,
    "kuairand": KUAIRAND,
    "amazon": AMAZON,
}


def draft_of_set(name: str, folder: pathlib.Path) -> tuple[str, list[str]]:
    """Returns the YAML of a configuration for a published data set, and a sentence about each missing part.

    Args:
        name: A name in SETS.
        folder: The folder of its files, as they are published; plain, or compressed with gzip, bz2 or zstd.

    Raises:
        InputError: the folder lacks a file, or a file has other columns.
    """
    known, files = SETS[name], SetFolder(name, folder)
    values = {"name": name, **_with_settings(known.draft(files))}
    return _page(f"`ctrpipe init --dataset {name}`. {known.title}", values), files.lacking


def draft_of_behaviors(patterns: Sequence[str], name: str) -> str:
    """Returns the YAML of a configuration for files of the shape of MIND's behaviors.tsv.

    Args:
        patterns: The files and globs.
        name: The configuration's name.
    """
    values = {"name": name, **_with_settings(configuration(list(patterns), []))}
    return _page("`ctrpipe init`: each item of the lists of impressions becomes a row", values)


def _with_settings(values: dict[str, Any]) -> dict[str, Any]:
    """Adds the model and training for the configuration's number of rows, unless it extends a configuration.

    A sample of a set gets the settings of a small log, because a network for millions of rows hardly learns from a
    small one.
    """
    if "extends" in values:
        return values
    split = values["data"]["split"].get("files", {})
    paths = [*values["data"].get("paths", []), *(path for part in split.values() for path in part)]
    has_history = any(feature["kind"] == "sequence" for feature in values["features"])
    columns = sum(len(feature["columns"]) for feature in values["features"])
    size = LogSize(count_rows(paths, read_sample(paths[0])), columns, _RATE, has_history, not openmp_missing())
    return {**values, **(_few_histories(size.rows) if has_history and not size.is_large else settings(size))}


def _few_histories(rows: int) -> dict[str, Any]:
    """Returns the model, the training and the baseline for less than a million rows with histories.

    An epoch of a few batches would end before the patience of a few evaluations has seen the model learn. Attention
    over embeddings that begin near 0 learns nothing of a history in these epochs, the linear part learns what single
    columns tell sooner than embeddings do, and the epoch of the best AUC is overconfident.
    """
    wanted = 2 ** round(math.log2(max(rows, 1) / _STEPS))
    batch = min(max(round(wanted), _FEWEST_IN_BATCH), _MOST_IN_BATCH)
    return {
        "model": {
            "name": "din",
            "embedding_dim": 16,
            "embedding_stddev": 0.1,
            "use_linear": True,
            "linear_rate": 3.0,
        },
        "training": {
            "epochs": 20,
            "batch_size": batch,
            "evaluations_per_epoch": 2 if batch == _MOST_IN_BATCH else 1,
            "patience": 4,
            "learning_rate": 0.001,
            "monitor": "log_loss",
        },
        "evaluation": {"baseline": {"name": "lr"}},
    }


class _EachInFull(yaml.SafeDumper):
    """Writes a list that occurs twice in full each time, not as an anchor and an alias."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _page(head: str, values: dict[str, Any]) -> str:
    options: dict[str, Any] = {"sort_keys": False, "default_flow_style": None, "width": 120, "allow_unicode": True}
    text: str = yaml.dump(values, Dumper=_EachInFull, **options)
    load_config(read_yaml(text))
    return f"# Written by {head}.\n{text}"
