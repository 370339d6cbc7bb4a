"""The Python face with URLs of stores: configurations, models, and what its functions write."""

import io
import json
import pathlib
import shutil

import numpy as np
import pandas as pd
import pytest
import yaml
from click.testing import CliRunner

import ctrpipe
from ctrpipe.common import stores
from ctrpipe.common.store_names import CACHE, with_urls
from ctrpipe.data import FOLDER, place_of
from ctrpipe.pipeline.cli import main
from ctrpipe.serving.stored import push_version
from ctrpipe.settings import output_place
from tests.ctrpipe.small_log import CONFIG, frame

slow = pytest.mark.slow
SMALL = {"training__epochs": 1, "evaluation__baseline": None, "evaluation__slices": []}


@pytest.fixture(autouse=True)
def _of_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def read(url):
    return json.loads(stores.read_bytes(url))


def as_read(report):
    """A report as its file in the store has it: lists in place of tuples, URLs in place of their local folders."""
    return json.loads(with_urls(json.dumps(report)))


def names_below(url):
    return {each.removeprefix(f"{url}/") for each, _ in stores.objects_below(url)}


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("runs/mine", "runs/mine"),
        (pathlib.Path("/runs/mine"), "/runs/mine"),
        ("file:///runs/mine", "/runs/mine"),
        ("s3://bucket/mine", "s3://bucket/mine"),
    ],
)
def test_an_output_is_a_path_or_a_url(path, place):
    assert place_of(path) == output_place(path, "other") == place
    assert output_place(None, "other") == "runs/other"


@pytest.mark.parametrize("url", ["s3://bucket/mine", "file:///runs/mine"])
@pytest.mark.parametrize(
    "work",
    [
        lambda path: ctrpipe.run(CONFIG, frame(20), path),
        lambda path: ctrpipe.check(path),
        lambda path: ctrpipe.check(CONFIG, path),
        lambda path: ctrpipe.init(frame(20), path),
        lambda path: ctrpipe.load(path),
        lambda path: ctrpipe.compare(path, path),
    ],
    ids=["output", "config", "data", "draft", "model", "compared"],
)
def test_a_url_that_pathlib_has_shortened_is_refused(work, url, tmp_path):
    with pytest.raises(ctrpipe.InputError, match="a pathlib.Path cannot hold a URL; give the URL as text"):
        work(pathlib.Path(url))
    assert not list(tmp_path.iterdir())


def test_a_draft_is_written_to_its_url_and_replaces_no_file(s3, tmp_path):
    url = f"{s3.url}/ads.yaml"
    draft = ctrpipe.init(frame(), url, label="click")
    assert draft.path == url and stores.read_bytes(url) == draft.text.encode()
    assert ctrpipe.check(draft.path, frame()).passed
    frame().to_csv("log.csv", index=False)
    with pytest.raises(ctrpipe.InputError, match=f"^{url}: the file exists, and may have been edited"):
        ctrpipe.init(frame(), url)
    done = CliRunner().invoke(main, ["init", "log.csv", "--output", url])
    assert done.exit_code == 2 and f"{url}: the file exists, and may have been edited" in done.output
    other = f"{s3.url}/other.yaml"
    done = CliRunner().invoke(main, ["init", "log.csv", "--label", "click", "--output", other])
    assert done.exit_code == 0 and f"Written: {other}" in done.output
    assert stores.is_file(other)
    with pytest.raises(ctrpipe.InputError, match="no such bucket"):
        ctrpipe.init(frame(), f"{s3.url}-none/ads.yaml")
    assert ctrpipe.init(frame(), f"file://{tmp_path}/ads.yaml", label="click").path == tmp_path / "ads.yaml"


def test_a_configuration_may_be_in_a_store(s3):
    url = f"{s3.url}/ads.yaml"
    with pytest.raises(ctrpipe.InputError, match=f"^{url}: no such file; check the path"):
        ctrpipe.check(url, frame())
    stores.write_bytes(url, yaml.safe_dump(CONFIG).encode())
    assert ctrpipe.check(url, frame()).passed


def test_a_url_without_a_model_is_not_served(s3):
    stores.write_bytes(f"{s3.url}/logs/log.csv", b"a,b")
    with pytest.raises(ctrpipe.InputError, match=f"^{s3.url}/logs: no complete run or model version here"):
        ctrpipe.serve(f"{s3.url}/logs")


@slow
def test_what_functions_write_is_at_their_urls_without_the_table_that_was_given(s3, run, runs, tmp_path):
    models = f"{s3.url}/models/ctr"
    push_version(next(run.model.iterdir()), models)
    with ctrpipe.load(models) as model:
        expected = np.asarray(model.predict(frame(5)))
    with ctrpipe.serve(models) as server:
        np.testing.assert_allclose(np.asarray(server.predict(frame(5))), expected, rtol=1e-5)
    comparison = ctrpipe.compare(run, runs / "other", output=f"{s3.url}/compared/ab.json")
    assert names_below(f"{s3.url}/compared") == {"ab.json", "ab.svg", "ab.html"}
    assert read(f"{s3.url}/compared/ab.json") == as_read(comparison.report)
    ranking = ctrpipe.ranking(models, frame(), group="user", output=f"{s3.url}/ranking")
    assert read(f"{s3.url}/ranking/ranking.json") == as_read(ranking.report)
    own = shutil.copytree(run.output, tmp_path / "run")  # its report gets the explanation
    explained = ctrpipe.explain(own, rows=200, repeats=1, pairs=0, prune=0.5, output=f"{s3.url}/explained")
    assert explained.pruned is not None
    assert stores.read_bytes(f"{s3.url}/explained/pruned.yaml") == explained.pruned.read_bytes()
    films = frame()[["film", "year"]].drop_duplicates()
    retrieval = ctrpipe.retrieve(
        models, films, queries=frame(3), output=f"{s3.url}/indexed/ctr", answers=f"{s3.url}/best.parquet", top=2
    )
    found = pd.read_parquet(io.BytesIO(stores.read_bytes(f"{s3.url}/best.parquet")))
    assert len(found) == 3 and len(retrieval.to_pandas()) == 6
    assert f"{retrieval.version.name}/saved_model.pb" in names_below(f"{s3.url}/indexed/ctr")
    written = names_below(s3.url)
    assert written >= {"ranking/ranking.html", "explained/explanation.json"}
    assert not any(FOLDER in name.split("/") for name in written)


LIKE = "tests/ctrpipe/test_urls.py::test_what_functions_write_is_at_their_urls_without_the_table_that_was_given"


@pytest.mark.large(like=LIKE)
@slow
def test_runs_sweeps_searches_replays_and_drifts_are_at_their_urls(s3):
    run = ctrpipe.run(CONFIG, frame(300), f"{s3.url}/run", **SMALL)
    assert read(f"{s3.url}/run/metrics.json") == as_read(run.metrics)
    sweep = ctrpipe.sweep(CONFIG, frame(300), f"{s3.url}/sweep", grid={"model__embedding_dim": [2]}, seeds=1, **SMALL)
    assert read(f"{s3.url}/sweep/sweep.json") == as_read(sweep.report)
    tuning = ctrpipe.tune(CONFIG, frame(300), f"{s3.url}/tune", trials=1, seeds=0, **SMALL)
    assert stores.read_bytes(f"{s3.url}/tune/best.yaml") == tuning.best.read_bytes()
    drift = ctrpipe.drift(CONFIG, frame(200), frame(200, seed=2), output=f"{s3.url}/drift")
    assert read(f"{s3.url}/drift/drift.json") == as_read(drift.report)
    days = frame(600).assign(day=lambda rows: (rows.index // 200).astype(str))
    replay = ctrpipe.replay(CONFIG, days, f"{s3.url}/replay", day="day", window=1, policies=["frozen"], **SMALL)
    assert read(f"{s3.url}/replay/replay.json")["results"] == as_read(replay.report["results"])
    assert not any(FOLDER in name.split("/") for name in names_below(s3.url))
