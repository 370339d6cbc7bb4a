"""KDD Cup 2012, and event logs, from the command line to the pipeline's splits."""

import json
import pathlib

import pytest
from click.testing import CliRunner

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.models.base.registry import available
from ctrpipe.pipeline.cli import main
from ctrpipe.pipeline.config import RunConfig, load_config
from ctrpipe.pipeline.draft.check_log import check_log
from ctrpipe.pipeline.run.prepared import joined
from ctrpipe.transforms.generate import generate_kddcup2012
from ctrpipe.transforms.kddcup2012.join import SCHEMA
from ctrpipe.transforms.kddcup2012.layout import IDS, NUMBERS, TEXTS
from ctrpipe.transforms.log.files import find_files
from ctrpipe.transforms.log.ingest import ingest
from ctrpipe.transforms.log.payload import payload_files, read_payload
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.split import SPLITS

CONFIGS = sorted((pathlib.Path(__file__).parents[2] / "configs" / "kddcup2012").glob("[!_]*.yaml"))


def test_every_model_with_a_text_has_a_configuration_on_the_same_log():
    loaded = {path.stem: load_config(path) for path in CONFIGS}
    assert set(loaded) == {info.name for info in available() if info.needs_text}
    for name, config in loaded.items():
        assert config.model.name == name
        assert (config.data, config.features) == (loaded["bert4ctr"].data, loaded["bert4ctr"].features)
        assert set(config.feature_columns) == {*IDS, *NUMBERS, *TEXTS, "position"}
        assert set(config.feature_columns) | {"click", "part"} == set(SCHEMA.names)


def test_the_pipeline_reads_the_joined_log_with_its_parts(tmp_path):
    generate_kddcup2012(3000, 1, tmp_path / "files")
    made = CliRunner().invoke(main, ["prepare", "kddcup2012", str(tmp_path / "files"), str(tmp_path / "log")])
    assert made.exit_code == 0, made.output
    summary = json.loads((tmp_path / "log" / "summary.json").read_text())
    assert f"--data '{summary['log']}'" in made.output
    config = load_config(CONFIGS[0])
    folders = {name: tmp_path / name for name in SPLITS}
    for folder in folders.values():
        folder.mkdir()
    files = sorted(str(path) for path in (tmp_path / "log" / "log").glob("part-*.parquet"))
    result = ingest(config.log_spec, files, 1, folders, tmp_path / "dead", Workers(processes=1))
    assert result.rejected == 0
    assert list(result.rows.values()) == list(summary["impressions"].values())
    assert list(result.positives.values()) == list(summary["clicks"].values())
    rows = next(iter(read_payload(payload_files(folders["train"]))))
    assert b"|u" in rows["ad_tokens"][0].as_py() and rows["position"][0].as_py() in (b"1", b"2", b"3")


def test_a_run_on_the_folder_joins_it_once(tmp_path, capsys):
    generate_kddcup2012(1000, 1, tmp_path / "files")
    config = load_config(CONFIGS[0])
    paths = joined([str(tmp_path / "files")], config, tmp_path / "run")
    assert paths == [str(tmp_path / "run" / "prepared" / "log" / "part-*.parquet")]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / "prepared" / "log").iterdir()}
    assert joined([str(tmp_path / "files")], config, tmp_path / "run") == paths
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / "prepared" / "log").iterdir()} == before
    assert "rows of 1,000 lines; 0 malformed lines" in capsys.readouterr().err


def test_files_and_other_folders_stay_what_they_are(tmp_path):
    config = load_config(CONFIGS[0])
    for paths in (["a.tsv", "b/*.tsv"], [str(tmp_path)], []):
        assert joined(paths, config, tmp_path / "run") == paths
    assert not (tmp_path / "run").exists()


def test_mistakes_are_one_line(tmp_path):
    (tmp_path / "empty").mkdir()
    for folder, message in (("empty", "lacks training.txt"), ("absent", "no such folder")):
        result = CliRunner().invoke(main, ["prepare", "kddcup2012", str(tmp_path / folder), str(tmp_path / "log")])
        assert result.exit_code == 2 and message in result.output and result.output.count("\n") == 1
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="a file is in the way"):
        generate_kddcup2012(1000, 1, tmp_path / "files")
        joined([str(tmp_path / "files")], load_config(CONFIGS[0]), tmp_path / "file")


EVENTS = "".join(f"u{n % 7},i{n * 5 % 11},{1000 + n},{n % 3 // 2}\n" for n in range(120))


def event_config(**events) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "events",
            "events": {"label": "click", **events},
            "data": {
                "format": "parquet",
                "labels": {"ctr": "label"},
                "split": {"by": "time", "column": "part", "validation_from": "1", "test_from": "2"},
            },
            "features": [
                {"columns": ["item"], "kind": "categorical"},
                {"columns": ["item_history"], "kind": "sequence", "shared_with": "item", "max_length": 9},
            ],
            "model": {"name": "nais"},
        }
    )


def test_an_event_log_becomes_the_impressions_that_the_configuration_reads(tmp_path):
    (tmp_path / "events.csv").write_text("user,item,time,click\n" + EVENTS)
    config = event_config(max_length=4)
    paths = joined([str(tmp_path / "events.csv")], config, tmp_path / "run")
    batches = [batch for file in find_files(paths) for batch in LogReader(config.log_spec).read(file)]
    rows = [row for batch in batches for row in batch.rows.to_pylist()]
    assert len(rows) == 120 and sum(row["label"] for row in rows) == 40
    lengths = [len(row["item_history"].split(b"|")) if row["item_history"] else 0 for row in rows]
    assert set(lengths) == {0, 1, 2, 3, 4} and not any(batch.rejects for batch in batches)
    assert joined([str(tmp_path / "events.csv")], config, tmp_path / "run") == paths


def test_a_check_of_an_event_log_says_what_it_leaves_out(tmp_path):
    (tmp_path / "events.csv").write_text("user,item,time,click\n" + EVENTS)
    found = check_log(event_config(), [str(tmp_path / "events.csv")])
    assert found.errors == [] and any("makes impressions of the log" in note for note in found.notes)
    assert "no such file" in check_log(event_config(), [str(tmp_path / "absent.csv")]).errors[0]
