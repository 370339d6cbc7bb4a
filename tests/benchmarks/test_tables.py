"""The tables of each benchmark, made from a small report alone."""

import importlib
from typing import Any

import pytest
from rich.console import Group, RenderableType
from rich.table import Table

MACHINE = {"cpu": "C", "cores": 4, "python": "3.11"}
TIMES = {"median": 2.0, "min": 1.0, "max": 4.0}
SHAPE = {"fields": 3, "ids": 10, "dim": 4, "batch": 16}
FM = {"model": "fm", "busy": 0.0, "reason": None, "backend": "jax", "precision": "float32"}
SPEEDS = {"ours_samples_per_s": TIMES, "theirs_samples_per_s": TIMES, "ratio": TIMES, "target": 1.5, "met": True}
TRAIN = {"backend": "jax", "optimizer": "adam", "threads": 2}
TRAIN["models"] = [
    {**FM, "peer": "recbole", **SPEEDS},
    {**FM, "backend": "tensorflow", "peer": None, "ours_samples_per_s": TIMES},
    {**FM, "peer": "recbole", "reason": "out of memory"},
]
SPEED = {"name": "packed", "rows_per_s": TIMES, "rows_per_cpu_s": TIMES, "target": None, "met": None}
SHARDED = {"optimizer": "adam", "devices": 2, "device_bytes": 2**20, "live_bytes": 2**21, "row_bytes": 64.0}
SHARDED |= {"formula_row_bytes": 64, "rest_bytes": 2**19, "step_ms": TIMES, "largest_rows": 3e6}
CANDIDATES = {"model": "din", "difference": 1e-7, "target": 0.5, "met": False}
SIGNATURES = ("serving_candidates", "serving_raw", "serving_default")
CANDIDATES["calls"] = {name: {"ms": 3.0, "cpu_ms": 2.0} for name in SIGNATURES}
CANDIDATES |= {key: {name: 0.25 for name in SIGNATURES[1:]} for key in ("over", "cpu_over")}
SIDE = {"side": "ours", "rule": "top", "rows": 1000, "workers": None, "bad_rate": 0.05, "seconds": 2.0}
SIDE |= {"rows_per_s": 500.0, "cpu_seconds": 1.5, "peak_bytes": 2**20, "stages": {"start": 0.5, "LogTransform": 1.5}}
STOCK = {**SIDE, "side": "stock", "bad_rate": 0.0, "stages": {}}
RATIO = {"peer": "stock", "rule": "top", "rows": 1000, "peer_rows": 500, "ratio": 21.0, "cpu_ratio": 3.0}
RATIO |= {"target": 20.0, "met": True}
FOUND = {"planted": 2, "found": 1, "false": 0, "share_found": 0.5, "share_false": 0.0}
SUMMARY: dict[str, Any] = {kind: FOUND for kind in ("columns", "used_columns", "pairs", "needed_pairs")}
SUMMARY["columns"] = {**FOUND, "met": True}
SUMMARY["rank_correlations"] = {"a and b": {"mean": 0.5, "interval": (0.25, 0.75)}}
DIFFERENCE = {"difference": 0.01, "interval": [0.005, 0.015]}
CLAIM = {"log": "sparse", "best_auc": 0.8, "auc": {"LR": [0.5], "all": [0.6, 0.8], "top 3": [0.75]}}
CLAIM |= {"difference": DIFFERENCE, "said": "gain", "verdict": "holds"}
TEXT_MODEL = {"auc": [0.7, 0.8], "rig": [0.1, 0.2], "costs": {key: TIMES for key in ("training", "inference")}}
CALLS = {key: TIMES for key in ("retrieve_ms", "approximate_ms", "user_ms", "call_ms")}
SEARCH = {"index": "exact", "setting": None, "build_s": None, "recall": 1.0, "ms": TIMES}
HTTP = {"side": "ctrpipe", "rows": 1, "cpu_ms": 0.5, "p50_ms": 1.0, "difference_ms": 0.0, "low_ms": 0.0, "high_ms": 0.0}

# By module: a report, and some rows of its tables.
REPORTS: dict[str, tuple[dict[str, Any], list[tuple[str, ...]]]] = {
    "benchmarks.backends": (
        {"threads": 2, "optimizer": "adam", "ways": ["tensorflow", "jax"]}
        | {
            "results": [
                {"model": "lr", "batch": 16, "median": {"tensorflow": 1000.0}, "first_step_cpu_s": {"a": 1.0, "b": 2.0}}
                | {"over": {"jax": TIMES}, "cpu_over": {"jax": TIMES}}
            ]
        },
        [("lr", "16", "1,000", "2.00 (1.00-4.00)", "2.00", "1.0, 2.0")],
    ),
    "benchmarks.calls": (
        {"rows": [1, 1000], "results": [{"model": "fm", "backend": "jax", "p50_ms": [0.5, 12.34]}]},
        [("fm", "jax", "0.5", "12.3")],
    ),
    "benchmarks.candidates": (
        {"candidates": 500, "events": 200, "models": [CANDIDATES, {**CANDIDATES, "target": None, "met": None}]},
        [
            ("din", *["3.0 (2.0)"] * 3, *["0.250 (0.250)"] * 2, "0.5", "missed", "1e-07"),
            ("din", *["3.0 (2.0)"] * 3, *["0.250 (0.250)"] * 2, "", "", "1e-07"),
        ],
    ),
    "benchmarks.columns": (
        {"rows": 60, "model": "lr"}
        | {
            "runs": [{"columns": 2000, "seconds": 9.0, "cpu_seconds": 12.0, "peak_mib": 1500, "stages": {"start": 1.5}}]
        },
        [("all", "9.0"), ("all, of all cores", "12.0"), ("start", "1.5"), ("peak MiB", "1,500")],
    ),
    "benchmarks.first_answer": (
        {
            "logs": {
                "bank": {
                    "model": "fm",
                    "rows": {"test": 1000},
                    "clicks": 90,
                    "ahead": [-0.01, 0.02],
                    "sides": {
                        "ctrpipe": {"auc": 0.75, "calibration": 1.01, "calibration_interval": [0.9, 1.1]},
                        "scikit-learn LR": {"auc": 0.5},
                        "LightGBM": {"auc": 0.25},
                    },
                }
            }
        },
        [("bank", "fm", "1,000", "90", "0.7500", "0.5000", "0.2500", "-0.0100 .. +0.0200", "1.010", "0.900 .. 1.100")],
    ),
    "benchmarks.floor": (
        {
            "signature": "serving_packed",
            "results": [
                {
                    "way": "a",
                    "rows": [{"rows": 1, "p50_ms": 0.5, "p50_ms_ratio": 0.75, "cpu_ms_ratio": 1.0, "difference": 0.0}],
                },
                {"way": "b", "error": "it ended"},
            ],
        },
        [("a", "0.500 (0.75 / 1.00)", "0e+00"), ("b", "it ended", "")],
    ),
    "benchmarks.http": (
        {key: [HTTP] for key in ("http", "parse", "write")},
        [("ctrpipe", "1", "0.5000", "1.0000", "+0.0000", "+0.0000 .. +0.0000")] * 3,
    ),
    "benchmarks.memory": (
        {"lines": [{"name": "cin", "value": 0.25, "target": 0.5, "unit": "", "met": True}]},
        [("cin", "0.25", "0.50", "met")],
    ),
    "benchmarks.peak": (
        {"size": 16, "devices": {"jax": "cpu"}, "flops_per_s": {"jax": {"float32": 2.5e12}}},
        [("jax", "cpu", "float32", "2.500")],
    ),
    "benchmarks.precision": (
        {
            "rows": 1000,
            "seeds": 2,
            "best_auc": 0.8,
            "models": {
                "fm": {
                    "float32": {"auc": [0.7, 0.8], "seconds": [1.0]},
                    "mixed_bfloat16": {"auc": [0.7, 0.7], "seconds": [3.0], "difference": DIFFERENCE},
                }
            },
        },
        [
            ("fm", "float32", "0.75000", "", "", "1.0"),
            ("fm", "mixed_bfloat16", "0.70000", "+0.01000", "+0.00500 .. +0.01500", "3.0"),
        ],
    ),
    "benchmarks.preprocess": (
        {
            "results": [SIDE, STOCK],
            "ratios": [RATIO],
            "speed_ups": [{"workers": 2, "speed_up": 1.7, "target": 1.6, "met": True}],
        }
        | {"growth": {"1": [{"rows": [10, 20], "marginal_rows_per_s": None}]}, "bad_rows": None}
        | {
            "same": [
                {
                    "peer": "stock",
                    "rows": 10,
                    "lines": 5,
                    "ids": 4,
                    "different_ids": 1,
                    "different_vocabularies": [],
                    "met": False,
                }
            ]
        },
        [
            ("ours, 5% malformed", "top", "1,000", "auto", "2.0", "500", "1.5", "1"),
            ("stock", "top", "1,000", "", "2.0", "500", "1.5", "1"),
            ("ours, 5% malformed", "1,000", "auto", "start 0.5, LogTransform 1.5"),
            ("rows/s over those of stock, 1,000 rows, theirs measured at 500 and scaled", "21.0", ">= 20", "met"),
            ("the same ids as stock, 10 rows, 5 values", "not 1", "all", "missed"),
        ],
    ),
    "benchmarks.reader": (
        {
            "rows": 10,
            "fields": 2,
            "batch": 5,
            "threads": 1,
            "readers": [{**SPEED, "target": 500_000, "met": False}],
            "epochs": [SPEED],
        },
        [("packed", "2", "1-4", "2", "500,000", "missed"), ("packed", "2", "1-4", "2", "", "")],
    ),
    "benchmarks.retrieval": (
        {"threads": 2, "results": [{"items": 1000, "bytes": 2**20, "write_s": 1.0, **CALLS, "searches": [SEARCH]}]},
        [("1,000", "1", "1.0", *["2.00", "1.00"] * 2, "2.00"), ("", "exact", "all", "1.0000", "2.000", "1.000", "")],
    ),
    "benchmarks.sharded_tables": (
        {"gigabytes": 80.0, "threads": 2, "shape": SHAPE, "results": [{**SHARDED, "devices_for_target": 7}]},
        [("adam", "2", "1.0", "2.0", "64.0", "64", "0.5", "2.0", "3", "7")],
    ),
    "benchmarks.sizes": (
        {
            "python": "3.11",
            "bytes": {"tensorflow": 1e9, "base": 1.5e9},
            "ratio": 1.5,
            "added": {"keras": 2e6},
            "help": {"wall": 0.3, "cpu": 0.2},
        },
        [("the base, MB", "1,500", "1,600"), ("  of it keras, MB", "2", "")],
    ),
    "benchmarks.stores": (
        {
            "rows": 1000,
            "threads": 2,
            "seconds": {"disk": [1.0, 2.0, 4.0], "store": [2.5], "moto's server": [5.0]},
            "core_seconds": {"disk": [1.0, 2.0, 4.0], "store": [2.2], "moto's server": [2.4]},
            "over_disk": {
                "store": {"seconds": 1.25, "core_seconds": 1.1},
                "moto's server": {"seconds": 2.5, "core_seconds": 1.2},
            },
            "met": False,
            "faults": {"cut": {"seconds": 4.0, "core_seconds": 3.0, "faults": 3}},
        },
        [
            ("disk", "500", "1.00", "1.00", ""),
            ("store", "400", "1.25", "1.10", "1.2 missed"),
            ("moto's server", "200", "2.50", "1.20", ""),
            ("moto, 3 requests with the fault cut", "250", "2.00", "1.50", ""),
        ],
    ),
    "benchmarks.tables": (
        {"rows": [60, 600], "model": "fm", "history": 0, "batch": 16, "threads": 1, "backend": "jax"}
        | {
            "results": [
                {
                    "optimizer": "adam",
                    "zipf": None,
                    "small_ms": TIMES,
                    "large_ms": TIMES,
                    "ratio": TIMES,
                    "target": None,
                    "met": None,
                }
            ]
        },
        [("adam", "uniform", "2.0", "2.0", "2.00", "1.00-4.00", "", "")],
    ),
    "benchmarks.text_cost": (
        {
            "measured": [
                {
                    "features": 57,
                    "models": {"bert4ctr": dict.fromkeys(("average", "median", "p90", "p95"), 2.0)},
                    "bert4ctr over shallow_interaction_n": 1.25,
                    "numbert over bert4ctr": 4.5,
                }
            ]
        },
        [("57", "bert4ctr", *["2.00"] * 4), ("", "numbert / bert4ctr (>= 4)", "", "4.50", "", "")],
    ),
    "benchmarks.train": (
        TRAIN,
        [
            ("fm (jax)", "2", "recbole", "2", "2.00", "1.00-4.00", "1.5", "met"),
            ("fm (tensorflow)", "2", "", "", "", "", "", ""),
            ("fm (jax)", "", "recbole", "", "", "", "", "out of memory"),
        ],
    ),
    "benchmarks.tune": (
        {
            "grid": {"points": 48, "auc": 0.8, "steps": 1000},
            "studies": [
                {"seed": 1, "trials": 24, "stopped": 9, "auc": 0.81, "auc_within": None, "reached": 250, "share": 0.25}
            ],
        },
        [("1", "24", "9", "0.8100", "", "250 steps", "25.0%")],
    ),
    "studies.attention": (
        {"best_auc": 0.9, "auc": {"sum": [0.6], "din": [0.8, 0.9]}, "share": {"sum": [0.25], "din": [0.9, 1.0]}},
        [
            ("sum", "0.6000", "25.0%", "25.0% .. 25.0%", "< 30%"),
            ("din", "0.8500", "95.0%", "90.0% .. 100.0%", ">= 95%"),
        ],
    ),
    "studies.claims": (
        {"seeds": 2, "claims": {"top_k": CLAIM}},
        [
            (
                "top_k",
                "sparse",
                "0.8000",
                "0.5000",
                "all 0.7000",
                "top 3 0.7500",
                "+0.0100",
                "+0.0050 .. +0.0150",
                "gain",
                "holds",
            )
        ],
    ),
    "studies.explain": (
        {"models": {"fm": {"summary": SUMMARY}}},
        [
            ("fm", "columns", "2", "1", "0", "50.0%", "0.0%", "met"),
            ("fm", "needed pairs", "2", "1", "0", "50.0%", "0.0%", ""),
            ("fm", "ranks by a and b", "", "", "", "+0.50", "", "+0.25 .. +0.75"),
        ],
    ),
    "studies.learning": (
        {
            "settings": {"lr": {}, "fm": {}},
            "logs": {
                "pairs": {
                    "lr_auc": 0.5,
                    "best_auc": 0.9,
                    "models": {
                        "lr": {"auc": [0.5], "share": [0.0]},
                        "fm": {"auc": [0.8, 0.9], "share": [0.75, 1.0]},
                    },
                }
            },
        },
        [("lr", "0.5000", "0.0%", "0.0% .. 0.0%", "<= 10%"), ("fm", "0.8500", "87.5%", "75.0% .. 100.0%", ">= 70%")],
    ),
    "studies.negative_sampling": (
        {
            "rows": 10,
            "sides": {"all rows": {"rows": 8, "log_loss": 0.5, "auc": 0.7, "calibration": 1.0, "seconds": 2.0}},
        },
        [("all rows", "8", "0.50000", "0.70000", "1.00000", "2.0")],
    ),
    "studies.seed_noise": (
        {
            "repeats": 4,
            "rows": 10,
            "seeds": 2,
            "called_different": {
                "same model": dict.fromkeys(
                    ("rows and seeds", "rows alone, one seed a side", "t over shards above 3, one seed a side"), 0.05
                )
            },
        },
        [("same model", "5.0%", "5.0%", "5.0%")],
    ),
    "studies.text_claims": (
        {
            "seeds": 2,
            "logs": [
                {
                    "interplay": 0.0,
                    "best_auc": 0.9,
                    "best_of_the_others": "NumBERT",
                    "models": {
                        "BERT4CTR": TEXT_MODEL,
                        "NumBERT": {**TEXT_MODEL, "behind": DIFFERENCE, "said": "no gain", "verdict": "holds"},
                    },
                }
            ],
        },
        [
            ("interplay 0: best possible", "0.9000", *[""] * 7),
            ("BERT4CTR", "0.7500", "0.1500", "", "", "", "", "2.000", "2.000"),
            ("NumBERT*", "0.7500", "0.1500", "+0.0100", "+0.0050 .. +0.0150", "no gain", "holds", "2.000", "2.000"),
        ],
    ),
}


def rows_of(shown: RenderableType) -> list[tuple[str, ...]]:
    if isinstance(shown, Group):
        return [row for each in shown.renderables for row in rows_of(each)]
    assert isinstance(shown, Table)
    return list(zip(*(map(str, column.cells) for column in shown.columns), strict=True))


@pytest.mark.parametrize("module", REPORTS)
def test_a_table_has_the_figures_of_its_report(module):
    report, expected = REPORTS[module]
    benchmark = importlib.import_module(module)
    make = getattr(benchmark, "tables", None) or benchmark.table
    rows = rows_of(make({"machine": MACHINE, **report}))
    for row in expected:
        assert row in rows
