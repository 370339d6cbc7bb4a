"""The leaderboard: its sets and how it knows their files, its figures, and that it goes on where it ended."""

import gzip
import hashlib
import json
import os
import pathlib
from typing import Any

import click.testing
import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy.stats
import sklearn.metrics
import yaml

from benchmarks import leaderboard
from benchmarks.harness import benchmark, leaderboard_training
from benchmarks.harness.leaderboard_results import Trained, best_possible, cells, notes, page
from benchmarks.harness.leaderboard_results import leaderboard as entries_of
from benchmarks.harness.leaderboard_sets import (
    LeaderboardSet,
    check_files,
    contenders,
    find_files,
    find_tables,
    first_rows,
    known_sets,
    read_set,
    truth_of,
)
from ctrpipe.common.errors import InputError
from ctrpipe.models.base.registry import check_hyperparameters
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows, write_scored
from ctrpipe.transforms.generate import generate
from ctrpipe.transforms.log.pretrained_table import pretrained_tables, read_table

LABELS = np.array([1, 0, 0, 1, 0, 0, 1, 0] * 50, np.float64)
OWN = LeaderboardSet(name="own", files={"log": ["log.csv"]}, configs=["lr.yaml"], published={})


def trained(folder: pathlib.Path, name: str, seeds: list[np.ndarray], groups: np.ndarray | None = None) -> Trained:
    """A model whose trainings predicted these probabilities."""
    runs = []
    for seed, probabilities in enumerate(seeds):
        path = folder / f"{name}-{seed}.parquet"
        write_scored(path, ScoredRows("rows", {"ctr": LABELS}, {"ctr": probabilities}, groups=groups))
        runs.append(
            {"predictions": str(path), "parameters": 10, "parameters_without_embeddings": 4, "seconds": 2.0 + seed}
            | {"core_seconds": 3.0, "examples_trained": 400, "validation": {"auc": 0.7, "log_loss": 0.5}}
        )
    return Trained(name, runs)


def predicted(signal: float, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=len(LABELS))
    return 1 / (1 + np.exp(1.0 - signal * LABELS - 0.8 * noise))


def test_means_are_over_seeds_and_only_models_far_behind_are_told_from_the_best(tmp_path):
    of = {"weak": [predicted(0.1, seed) for seed in range(3)], "good": [predicted(1.5, seed + 10) for seed in range(3)]}
    of["twin"] = [0.999 * values for values in of["good"]]  # the same order, so the same AUC
    groups = np.arange(len(LABELS)) // 8 + 1
    found = entries_of([trained(tmp_path, name, seeds, groups) for name, seeds in of.items()], OWN)
    assert {found[0]["model"], found[1]["model"]} == {"good", "twin"} and found[2]["model"] == "weak"
    assert [entry["told_from_best"] for entry in found] == [False, False, True]
    for entry in found:
        seeds = of[entry["model"]]
        auc = [sklearn.metrics.roc_auc_score(LABELS, values) for values in seeds]
        assert entry["metrics"]["auc"]["mean"] == pytest.approx(np.mean(auc))
        assert entry["metrics"]["auc"]["deviation"] == pytest.approx(np.std(auc, ddof=1))
        losses = [sklearn.metrics.log_loss(LABELS, values) for values in seeds]
        assert entry["metrics"]["log_loss"]["mean"] == pytest.approx(np.mean(losses))
        in_groups = [
            [sklearn.metrics.roc_auc_score(LABELS[groups == one], values[groups == one]) for one in np.unique(groups)]
            for values in seeds
        ]
        assert entry["metrics"]["gauc"]["mean"] == pytest.approx(np.mean(in_groups))  # all groups have eight rows
        low, high = entry["metrics"]["auc"]["interval"]
        assert low < entry["metrics"]["auc"]["mean"] < high
    assert found[2]["behind"]["auc"]["difference"] == pytest.approx(
        found[2]["metrics"]["auc"]["mean"] - found[0]["metrics"]["auc"]["mean"]
    )
    # Two distances, so each interval has the level 97.5%.
    behind = found[2]["behind"]["log_loss"]
    half = scipy.stats.t.ppf(1 - 0.0125, behind["freedom"]) * behind["standard_error"]
    assert behind["interval"] == pytest.approx((behind["difference"] - half, behind["difference"] + half))


def test_an_interval_ends_where_a_metric_does(tmp_path):
    """Two trainings far apart leave one degree of freedom, and an AUC's interval reached from -.8 to 2.3."""
    apart = [predicted(0.1, 1), predicted(2.5, 2)]
    good = [predicted(3.0, 4), predicted(3.0, 5)]
    best, other = entries_of([trained(tmp_path, "good", good), trained(tmp_path, "apart", apart)], OWN)
    assert other["metrics"]["auc"]["interval"] == [0.0, 1.0]
    assert other["metrics"]["log_loss"]["interval"][0] == 0.0
    assert other["behind"]["auc"]["interval"] == [-1.0, 1.0] and not other["told_from_best"]
    assert best["metrics"]["auc"]["interval"][1] <= 1.0


def test_the_interval_of_a_log_loss_of_one_training_is_that_of_a_mean_over_rows(tmp_path):
    values = predicted(1.0, 1)
    [entry] = entries_of([trained(tmp_path, "lr", [values])], OWN)
    losses = -np.where(LABELS == 1, np.log(values), np.log1p(-values))
    error = losses.std(ddof=1) / np.sqrt(len(losses))
    expected = (losses.mean() - 1.959964 * error, losses.mean() + 1.959964 * error)
    assert entry["metrics"]["log_loss"]["interval"] == pytest.approx(expected, rel=1e-5)
    assert entry["metrics"]["log_loss"]["deviation"] is None
    assert "gauc" not in entry["metrics"]


def test_the_page_has_published_figures_beside_ours_and_says_what_is_not_comparable(tmp_path):
    chosen = OWN.model_copy(update={"published": read_set("criteo_x4_001")[0].published})
    models = entries_of([trained(tmp_path, "lr", [predicted(1.0, 1), predicted(1.0, 2)])], chosen)
    report: dict[str, Any] = {"set": "own", "source": "here", "rows": {"train": 5000, "validation": 400, "test": 400}}
    report |= {"models": models, "failed": {"fm": "it ended"}, "published_source": "BARS", "is_published_split": False}
    report |= {
        "best_possible": {"auc": 0.75, "log_loss": 0.5},
        "busy": 0.25,
        "named": "own.yaml",
        "rows_of_each_file": 900,
        "trials": None,
    }
    report |= {"with": ["training.epochs=2"], "is_generated": False, "models_of_set": ["lr", "fm", "mlp"], "seeds": 2}
    head, line, possible = cells(report)
    row = dict(zip(head, line, strict=True))
    assert (row["published AUC"], row["log loss, published"]) == ("0.7934", "0.4568")
    auc = models[0]["metrics"]["auc"]
    assert row["AUC (dev.)"] == f"{auc['mean']:.4f} ({auc['deviation']:.4f})" and row["s"] == "2"
    assert possible[head.index("AUC (dev.)")] == "0.7500" and possible[head.index("log loss (dev.)")] == "0.5000"
    text = page(report)
    assert "not comparable" in text and "Not trained: fm: it ended" in text and "5,000 training rows" in text
    assert "python -m benchmarks.leaderboard --set own.yaml --data FOLDER --rows 900 --with training.epochs=2" in text
    assert " --models lr,fm --seeds 2\n" in text and "Other work took 25%" in text
    assert "Not told from" not in text and "gAUC" not in text  # of one model without groups
    assert not any("not comparable" in one for one in notes({**report, "is_published_split": True}))
    assert "gAUC, published" not in head and "rows to choose by are the test rows" not in text
    published = OWN.model_copy(update={"published": {"lr": read_set("taobaoad_x1")[0].published["din"]}})
    grouped = {**report, "models": entries_of([trained(tmp_path, "lr", [predicted(1.0, 1)])], published)}
    head, line, _ = cells(grouped)
    assert line[head.index("gAUC, published")] == "0.5765"
    assert any("rows to choose by are the test rows" in one for one in notes({**grouped, "chooses_by_test": True}))


def test_the_best_possible_figures_are_those_of_the_true_probabilities(tmp_path):
    generated = generate("criteo", 2000, 3, tmp_path / "log.tsv")
    labels = np.array([line[:1] == "1" for line in generated.path.read_text().splitlines()], np.float64)[-500:]
    found = best_possible(generated.truth_path, ScoredRows("rows", {"ctr": labels}, {"ctr": labels}))
    true = pa.parquet.read_table(generated.truth_path)["probability"].to_numpy()[-500:]
    assert found is not None
    assert found["auc"] == pytest.approx(sklearn.metrics.roc_auc_score(labels, true))
    assert found["log_loss"] == pytest.approx(sklearn.metrics.log_loss(labels, true))
    assert best_possible(tmp_path / "none", ScoredRows("rows", {"ctr": labels}, {"ctr": labels})) is None


# The sets ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", known_sets())
def test_a_set_reads_and_its_configurations_have_options_that_their_models_know(name):
    chosen, beside = read_set(name)
    files = {part: [pathlib.Path(one) for one in names] for part, names in chosen.files.items()}
    for contender in contenders(chosen, beside, files or {"log": [pathlib.Path("log.tsv")]}).values():
        config = contender.config()
        check_hyperparameters(config.model.name, **config.model.hyperparameters)
        assert config.model.name == {"eta": "sim", "twin": "sim"}.get(contender.name, contender.name)
        assert [pathlib.Path(path).name for path in config.data.paths]
    assert (chosen.published == {}) == (chosen.published_source == "")


def test_published_settings_are_those_of_the_logs_behind_the_figures():
    """Against the settings that BARS logs for DCN-V2 on Criteo_x4_001 and for FinalMLP on Frappe_x1, and QNN's log."""
    chosen, beside = read_set("criteo_x4_001")
    files = {part: [pathlib.Path(one) for one in names] for part, names in chosen.files.items()}
    config = contenders(chosen, beside, files)["dcn_v2"].config()
    training = config.training
    assert config.model.hyperparameters["hidden_units"] == [1000] * 5
    assert (config.model.hyperparameters["normalization"], config.model.hyperparameters["dropout"]) == ("batch", 0.1)
    assert (training.batch_size, training.learning_rate, training.table_l2) == (10000, 1e-3, 1e-5)
    assert (training.monitor, training.patience, training.gradient_clip_norm) == ("auc_minus_log_loss", 2, 10.0)
    assert training.plateau is not None and (training.plateau.factor, training.plateau.patience) == (0.1, 1)
    config = contenders(chosen, beside, files)["qnn"].config()
    assert (config.training.monitor, config.training.batch_size, config.training.table_l2) == ("auc", 10000, 1e-5)
    assert [config.model.hyperparameters[name] for name in ("layers", "products", "heads", "dropout")] == [4, 4, 1, 0.1]
    assert (chosen.published["qnn"].auc, chosen.published["qnn"].log_loss) == (0.816289, 0.435923)
    config = contenders(chosen, beside, files)["fcn"].config()
    assert (config.training.monitor, config.training.batch_size, config.training.table_l2) == ("auc", 4096, 1e-5)
    names = ("exponential_layers", "linear_layers", "exponential_dropout", "linear_dropout")
    assert [config.model.hyperparameters[name] for name in names] == [3, 4, 0.1, 0.2]
    chosen, beside = read_set("frappe_x1")
    files = {part: [pathlib.Path(one) for one in names] for part, names in chosen.files.items()}
    config = contenders(chosen, beside, files)["final_mlp"].config()
    assert config.training.table_l2 == 0.05 and config.model.hyperparameters["first_context"] == ["user"]
    assert chosen.rows == {"train": 202027, "validation": 57722, "test": 28860}


def write_published(folder: pathlib.Path, name: str, rows: dict[str, int]) -> None:
    """Writes small files in the form that reczoo/Datasets publishes: their names, columns and separators."""
    random = np.random.default_rng(1)

    def history(values: int, length: int) -> list[str]:
        return ["^".join(map(str, random.integers(1, values, length))) for length in random.integers(0, length, count)]

    for part, count in rows.items():
        if name == "kuaivideo_x1":
            table = {"timestamp": np.arange(count), "user_id": random.integers(0, 5, count)}
            table |= {"item_id": random.integers(0, 8, count), "is_click": random.integers(0, 2, count)}
            table |= {"is_like": 0 * table["user_id"], "is_follow": 0 * table["user_id"]}
            table |= {"pos_items": history(8, 101), "neg_items": history(8, 101)}
        else:
            lengths = random.integers(0, 51, count)
            columns = (
                "userid cms_segid cms_group_id final_gender_code age_level pvalue_level shopping_level occupation "
                "new_user_class_level adgroup_id cate_id campaign_id customer brand"
            ).split()
            table = {"clk": random.integers(0, 2, count)}
            for column in ("btag_his", "cate_his", "brand_his"):
                table[column] = ["^".join(map(str, random.integers(1, 5, length))) for length in lengths]
            table |= {column: random.integers(1, 5, count) for column in columns}
            table |= {"price": random.random(count).round(3), "pid": random.integers(1, 3, count), "btag": [1] * count}
        pd.DataFrame(table).to_csv(folder / f"{part}.csv", index=False)
    if name == "kuaivideo_x1":
        with h5py.File(folder / "item_visual_emb_dim64.h5", "w") as file:  # every item of the log, and others
            file["key"], file["value"] = np.arange(9), random.normal(size=(9, 64)).astype(np.float32)


def test_rows_to_choose_by_that_are_the_test_rows_are_a_file_of_their_own(tmp_path):
    """BARS chooses by the test rows, and a run refuses a file in two splits."""
    chosen, beside = read_set("kuaivideo_x1")
    write_published(tmp_path, "kuaivideo_x1", {"train": 20, "test": 10})
    work = tmp_path / "work"
    files = find_files(chosen, tmp_path, work)
    [validation], [test] = files["validation"], files["test"]
    assert validation != test and validation.read_bytes() == test.read_bytes()
    assert find_files(chosen, tmp_path, work) == files
    parts = first_rows(files, 3, True, work)
    assert parts["validation"] != parts["test"] and parts["test"][0].read_text().count("\n") == 4
    tables = find_tables(chosen, tmp_path, work)
    config = contenders(chosen, beside, files, (), tables)["din"].config()
    read = read_table(pretrained_tables(config.log_spec)["item_id"], whole=True)
    with h5py.File(tmp_path / "item_visual_emb_dim64.h5") as file:
        np.testing.assert_array_equal(read.vectors, file["value"][:])
    assert read.keys.to_pylist() == [b"%d" % key for key in range(9)]
    before = leaderboard_training.key_of(config, 1)
    vectors = work / "item_visual_emb_dim64.npz"
    np.savez(vectors, key=np.arange(9), value=np.ones((9, 64), np.float32))
    assert leaderboard_training.key_of(config, 1) != before  # other vectors are another training
    vectors.unlink()
    with pytest.raises(InputError, match="item_visual_emb_dim64.npz: .*cannot"):
        leaderboard_training.key_of(config, 1)
    with h5py.File(tmp_path / "item_visual_emb_dim64.h5", "w") as file:
        file["key"], file["value"] = ["B1", "B\u00e9"], np.ones((2, 64), np.float32)
    texts = contenders(chosen, beside, files, (), find_tables(chosen, tmp_path, work))["din"].config()
    assert read_table(pretrained_tables(texts.log_spec)["item_id"], whole=True).keys.to_pylist() == [
        b"B1",
        "B\u00e9".encode(),
    ]
    with h5py.File(tmp_path / "item_visual_emb_dim64.h5", "w") as file:
        file["key"] = np.arange(9)
    with pytest.raises(InputError, match=r"item_visual_emb_dim64.h5: no vectors in HDF5 .*'value'.*; fetch it again"):
        find_tables(chosen, tmp_path, work)
    os.truncate(tmp_path / "item_visual_emb_dim64.h5", 900)
    with pytest.raises(InputError, match=r"item_visual_emb_dim64.h5: no vectors in HDF5 .*truncated.*; fetch it again"):
        find_tables(chosen, tmp_path, work)
    (tmp_path / "item_visual_emb_dim64.h5").unlink()
    with pytest.raises(InputError, match="has no item_visual_emb_dim64.h5; the files are those of github.com/reczoo"):
        find_tables(chosen, tmp_path, work)
    with pytest.raises(InputError, match="lr.yaml: user_id has no pretrained vectors"):
        contenders(read_set("movielenslatest_x1")[0], beside, files, (), {"user_id": work})


@pytest.mark.parametrize("links", [True, False])
def test_files_that_replace_others_are_taken_even_if_they_are_older(links, tmp_path, monkeypatch):
    chosen, _ = read_set("kuaivideo_x1")
    if not links:
        monkeypatch.setattr("os.link", refuse_link)
    vectors = []
    for name, count in (("new", 9), ("old", 5)):
        data = tmp_path / name
        data.mkdir()
        write_published(data, "kuaivideo_x1", {"train": count, "test": count})
        if name == "old":
            with h5py.File(data / "item_visual_emb_dim64.h5", "r+") as file:
                file["value"][:] = 0
            for path in data.iterdir():
                os.utime(path, (1_000_000_000, 1_000_000_000))
        files = find_files(chosen, data, tmp_path / "work")
        assert find_files(chosen, data, tmp_path / "work") == files
        first = first_rows(files, 7, True, tmp_path / "work")
        tables = find_tables(chosen, data, tmp_path / "work")
        vectors.append(np.load(tables["item_id"])["value"])
        for made, rows in ((files, count), (first, min(count, 7))):
            assert {part: made[part][0].read_text().count("\n") - 1 for part in made} == dict.fromkeys(made, rows)
    assert vectors[0].any() and not vectors[1].any()


def test_files_of_one_name_in_several_folders_stay_apart(tmp_path):
    names = ["a/part.csv", "b/part.csv"]
    chosen = OWN.model_copy(update={"files": {"train": ["train.csv"], "validation": names, "test": names}})
    (tmp_path / "train.csv").write_text("0\n" * 5)
    for place, name in enumerate(names):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(f"{place}\n" * 5)
    files = find_files(chosen, tmp_path, tmp_path / "work")
    for made, rows in ((files, 5), (first_rows(files, 2, False, tmp_path / "work"), 2)):
        assert [path.read_text() for path in made["validation"]] == ["0\n" * rows, "1\n" * rows]
        assert len({*made["validation"], *made["test"]}) == 4


def refuse_link(source: pathlib.Path, target: pathlib.Path) -> None:
    raise OSError("another file system")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kuaivideo_x1", pytest.param("taobaoad_x1", marks=pytest.mark.large)])
def test_histories_and_vectors_in_the_published_form_are_trained_on(name, tmp_path):
    chosen, beside = read_set(name)
    write_published(tmp_path, name, {"train": 300, "test": 120})
    work = tmp_path / "work"
    files, tables = find_files(chosen, tmp_path, work), find_tables(chosen, tmp_path, work)
    small = ("training.epochs=1", "model.hidden_units=[4]", "model.attention_hidden_units=[4]", "model.embedding_dim=4")
    contender = contenders(chosen, beside, files, small, tables)["din"]
    result = tmp_path / "result.json"
    leaderboard_training.train(
        leaderboard_training.Job(str(contender.path), list(contender.settings), 1, str(work), str(result))
    )
    found = json.loads(result.read_text())
    assert found["rows"] == {"train": 300, "validation": 120, "test": 120}
    [entry] = entries_of([Trained("din", [found])], chosen)
    log = pd.read_csv(tmp_path / "test.csv")
    scored = pa.parquet.read_table(found["predictions"]).to_pandas()
    log["score"] = scored["probability.ctr"] if "probability.ctr" in scored else scored["probability"]
    label, group = {"kuaivideo_x1": ("is_click", "user_id"), "taobaoad_x1": ("clk", "userid")}[name]
    users = [rows for _, rows in log.groupby(group) if rows[label].nunique() == 2]
    assert users
    aucs = [sklearn.metrics.roc_auc_score(rows[label], rows["score"]) for rows in users]
    gauc = np.average(aucs, weights=[len(rows) for rows in users])  # by impressions, as FuxiCTR's
    assert entry["metrics"]["gauc"]["mean"] == pytest.approx(gauc)
    auc = sklearn.metrics.roc_auc_score(log[label], log["score"])
    assert found["validation"]["auc_plus_gauc"] == pytest.approx(auc + gauc, rel=1e-4)


MISTAKES = {
    "both": ({"files": {"log": ["a"]}, "generate": {"format": "criteo", "rows": 9}}, "give files or generate"),
    "neither": ({}, "give files or generate"),
    "parts": ({"files": {"train": ["a"], "test": ["b"]}}, "one is missing"),
    "log_and_parts": ({"files": {"log": ["a"], "test": ["b"]}}, "give log, or train"),
    "twice": ({"files": {"log": ["a"]}, "configs": ["x/lr.yaml", "y/lr.yaml"]}, "the same name"),
    "published": ({"files": {"log": ["a"]}, "published": {"fm": {"auc": 1, "log_loss": 1}}}, "no configuration of fm"),
    "unknown_key": ({"files": {"log": ["a"]}, "confs": []}, "confs"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_in_a_set_is_one_line(case, tmp_path):
    values, said = MISTAKES[case]
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump({"name": "own", "configs": ["criteo/lr.yaml"], **values}))
    with pytest.raises(InputError, match=said) as error:
        read_set(str(path))
    assert "\n" not in str(error.value) and str(path) in str(error.value)


def test_an_unknown_set_and_missing_files_are_named(tmp_path):
    with pytest.raises(InputError, match="--set nosuch: no such set; give .*criteo_x4_001"):
        read_set("nosuch")
    with pytest.raises(InputError, match="--set .*gone.yaml: cannot read"):
        read_set(str(tmp_path / "gone.yaml"))
    chosen, _ = read_set("frappe_x1")
    with pytest.raises(InputError, match="--data: give the folder with train.csv, valid.csv, test.csv"):
        find_files(chosen, None, tmp_path)
    (tmp_path / "train.csv").write_text("label\n")
    with pytest.raises(InputError, match="has no valid.csv; the files are those of github.com/reczoo/Datasets"):
        find_files(chosen, tmp_path, tmp_path)


def test_a_generated_log_is_written_once_with_its_true_probabilities(tmp_path):
    chosen, _ = read_set("generated")
    assert chosen.generate is not None and chosen.generate.rows == 1_000_000
    chosen = chosen.model_copy(update={"generate": chosen.generate.model_copy(update={"rows": 50})})
    [log] = find_files(chosen, None, tmp_path)["log"]
    assert len(log.read_text().splitlines()) == 50
    assert pa.parquet.read_table(truth_of(log)).num_rows == 50
    written = log.stat().st_mtime_ns
    assert find_files(chosen, None, tmp_path) == {"log": [log]} and log.stat().st_mtime_ns == written


def test_a_file_that_is_not_the_published_one_is_refused_and_hashed_once(tmp_path, monkeypatch):
    path, kept = tmp_path / "train.csv", tmp_path / "checksums.json"
    path.write_text("label,a\n1,x\n")
    digest = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    chosen = OWN.model_copy(update={"md5": {"train.csv": digest}})
    check_files(chosen, {"train": [path]}, kept)
    with monkeypatch.context() as patch:
        patch.setattr(hashlib, "file_digest", None)
        check_files(chosen, {"train": [path]}, kept)  # the checksum is remembered
    path.write_text("label,a\n0,x\n")
    with pytest.raises(InputError, match="not the published file of own, its md5 is .*--sample"):
        check_files(chosen, {"train": [path]}, kept)


def test_the_first_rows_are_taken_below_a_header(tmp_path):
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress(b"label,a\n" + b"".join(b"1,%d\n" % number for number in range(9))))
    found = first_rows({"log": [path]}, 3, True, tmp_path / "work")
    assert [file.read_bytes() for file in found["log"]] == [b"label,a\n1,0\n1,1\n1,2\n"]
    without = first_rows({"log": [path]}, 2, False, tmp_path / "other")
    assert without["log"][0].read_bytes() == b"label,a\n1,0\n"


# Trainings -----------------------------------------------------------------------------------------------------------


def own_set(folder: pathlib.Path, rows: int) -> pathlib.Path:
    """A set of `lr` and `fm` on a generated log, and its file."""
    generate("criteo", rows, 1, folder / "log.tsv")
    (folder / "_base.yaml").write_text(
        "data: {format: tsv, columns: [label, I1..I13, C1..C26], labels: {ctr: label}}\n"
        "features: [{columns: [C1, C2, C3], kind: categorical}]\ntraining: {epochs: 1, batch_size: 256}\n"
    )
    for name in ("lr", "fm"):
        (folder / f"{name}.yaml").write_text(f"extends: _base.yaml\nname: own_{name}\nmodel: {{name: {name}}}\n")
    path = folder / "own.yaml"
    values = {"name": "own", "files": {"log": ["log.tsv"]}, "configs": ["lr.yaml", "fm.yaml"], "rows": {"test": 60}}
    path.write_text(yaml.safe_dump(values))
    return path


def called(*arguments: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(leaderboard.main, arguments)


def test_each_training_is_kept_and_only_missing_ones_run(tmp_path, monkeypatch):
    path = own_set(tmp_path, 600)
    started: list[tuple[str, int]] = []
    given: list[list[str]] = []

    def train(module: str, job: str) -> str | None:
        values = leaderboard_training.Job(**json.loads(pathlib.Path(job).read_text()))
        name = pathlib.Path(values.path).stem
        started.append((name, values.seed))
        given.append(values.settings)
        if name == "fm" and values.seed == 2 and len(started) < 5:
            return "killed"
        run = trained(tmp_path, f"{name}{values.seed}", [predicted(1.0, values.seed + len(name))]).runs[0]
        rows = {"train": 480, "validation": 60, "test": 60}
        test = {"auc": 0.7, "log_loss": 0.5, "examples": 60}
        pathlib.Path(values.result).write_text(json.dumps({**run, "rows": rows, "test": test}))
        return None

    monkeypatch.setattr(leaderboard, "_run", train)
    monkeypatch.setattr(benchmark, "busy", lambda: 0.5)
    options = ["--set", str(path), "--data", str(tmp_path), "--folder", str(tmp_path / "work"), "--seeds", "2"]
    options += ["--output", str(tmp_path / "board.json")]
    assert called(*options, "--models", "lr").exit_code == 0
    assert started == [("lr", 1), ("lr", 2)]
    failed = called(*options)  # both: fm's second training is killed, and lr's are there
    assert failed.exit_code == 1 and "fm: killed" in failed.output
    assert started[2:] == [("fm", 1), ("fm", 2)]
    report = json.loads((tmp_path / "board.json").read_text())
    assert [one["model"] for one in report["models"]] == ["lr"] and report["failed"] == {"fm": "killed"}
    done = called(*options)
    assert done.exit_code == 0, done.output
    assert "no comparison" not in done.output and "the seconds compare nothing" in done.output
    assert started[4:] == [("fm", 2)]
    report = json.loads((tmp_path / "board.json").read_text())
    assert {one["model"]: one["seeds"] for one in report["models"]} == {"lr": 2, "fm": 2}
    assert "| lr | 2 |" in (tmp_path / "board.md").read_text()
    assert called(*options, "--models", "lr", "--with", "training.epochs=2").exit_code == 0  # another training
    assert started[5:] == [("lr", 1), ("lr", 2)] and "training.epochs=2" in given[-1]
    assert json.loads((tmp_path / "board.json").read_text())["with"] == ["training.epochs=2"]
    wrong = called(*options, "--models", "dnn")
    assert wrong.exit_code == 2 and "unknown 'dnn'" in wrong.output
    # Other rows than the published ones: refused, unless it is said that they are others.
    path.write_text(path.read_text().replace("test: 60", "test: 61"))
    refused = called(*options)
    assert refused.exit_code == 2 and "60 test rows, not 61 as published for own" in refused.output
    assert called(*options, "--sample").exit_code == 0


@pytest.mark.slow
def test_a_training_in_a_process_of_its_own_scores_the_test_rows(tmp_path):
    path = own_set(tmp_path, 600)
    chosen, beside = read_set(str(path))
    contender = contenders(chosen, beside, find_files(chosen, tmp_path, tmp_path))["lr"]
    result = tmp_path / "result.json"
    leaderboard_training.train(
        leaderboard_training.Job(str(contender.path), list(contender.settings), 2, str(tmp_path / "work"), str(result))
    )
    found = json.loads(result.read_text())
    assert found["rows"] == {"train": 480, "validation": 60, "test": 60} and found["core_seconds"] > 0
    [entry] = entries_of([Trained("lr", [found])], chosen)
    labels = [int(line[:1]) for line in (tmp_path / "log.tsv").read_text().splitlines()][-60:]
    scored = pa.parquet.read_table(found["predictions"]).to_pandas()
    probabilities = scored["probability.ctr"] if "probability.ctr" in scored else scored["probability"]
    assert entry["metrics"]["auc"]["mean"] == pytest.approx(sklearn.metrics.roc_auc_score(labels, probabilities))
