"""Every mistake that a user can make with `ctrpipe run` and `ctrpipe serve`: one line, exit code 2, nothing pushed."""

import fcntl
import gzip
import json
import pathlib
import shutil
import socket
import subprocess

import pytest
import yaml

from ctrpipe.pipeline.components import log_example_gen
from ctrpipe.transforms.log.first_bytes import ENCODING_HINT
from tests.e2e.small_run import call, one_line, start

COLUMNS = ["label", "n", "c"]
CONFIG = {
    "name": "bad",
    "data": {"columns": COLUMNS, "labels": {"ctr": "label"}},
    "features": [{"kind": "numeric", "columns": ["n"]}, {"kind": "categorical", "columns": ["c"]}],
    "model": {"name": "lr"},
}
GOOD = [f"{row % 2}\t{row}\tv{row % 7}" for row in range(200)]


@pytest.fixture
def folder(tmp_path) -> pathlib.Path:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    return tmp_path


def run(folder: pathlib.Path, log: str | bytes | list[str] = "absent.tsv", *options, **data) -> tuple[int, str]:
    """`ctrpipe run` on a log of these lines, or these bytes, or with this name; `data` changes the configuration."""
    path = folder / (log if isinstance(log, str) else "log.tsv")
    if isinstance(log, list):
        path.write_text("\n".join(log) + "\n")
    elif isinstance(log, bytes):
        path.write_bytes(log)
    config = {**CONFIG, "data": {**CONFIG["data"], **data}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return call("run", folder / "config.yaml", "--data", path, "--output", folder / "out", *options)


def nothing_was_made(folder: pathlib.Path) -> bool:
    return not any((folder / "out" / name).exists() for name in ("models", "metrics.json", "report.html"))


MALFORMED = [
    (b"1\t5", "expected 3 columns, found 2"),
    (b"1\t5\ta\tb", "expected 3 columns, found 4"),
    (b"1\tfive\ta", "n: 'five' is not a number"),
    (b"1\t1e99\ta", "n: '1e99' is too large for a 32-bit float"),
    (b"2\t5\ta", "label: the label must be 0 or 1, found '2'"),
    (b"\t5\ta", "label: the label must be 0 or 1, found nothing"),
    (b"1\t5\t\xff\xfe", f"c: invalid UTF-8{ENCODING_HINT}"),
    (b"\xff\t\xfe", "expected 3 columns, found 2"),
    (b"1\t5\ta\rb", "a carriage return inside the row"),
    (b"", "the line is empty"),
]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["log.tsv", "log.tsv.gz"])
def test_malformed_rows_are_kept_with_file_line_and_reason(folder, name):
    good = "\n".join(GOOD).encode()
    content = b"\n".join([good, *(line for line, _ in MALFORMED), good]) + b"\n"
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    found = run(folder, name)
    total = 2 * len(GOOD) + len(MALFORMED)
    one_line(*found, f"{name}: {len(MALFORMED)} of {total} rows are malformed, above data.max_bad_row_rate 0.01")
    assert f"the first is line {len(GOOD) + 1}: {MALFORMED[0][1]}" in found[1]
    letters = [json.loads(line) for line in open(folder / "out" / "dead_letter" / "rejects.jsonl", encoding="utf-8")]
    assert [(letter["line"], letter["reason"]) for letter in letters] == [
        (len(GOOD) + number, reason) for number, (_, reason) in enumerate(MALFORMED, 1)
    ]
    assert {letter["file"] for letter in letters} == {str(folder / name)}
    assert nothing_was_made(folder)


def test_files_that_cannot_be_read(folder):
    whole = gzip.compress("\n".join(f"{line}{row * 7919 % 10007}" for row, line in enumerate(GOOD * 20)).encode())
    one_line(*run(folder, "absent.tsv"), "absent.tsv: no such file; check the path")
    one_line(*run(folder, "*.csv"), "*.csv: no file matches; check the path")
    (folder / "none").mkdir()
    one_line(*run(folder, "none"), "none: a folder without files; name the files of the log")
    assert not (folder / "out").exists()
    for content, name, message in (
        (b"", "empty.tsv", "empty.tsv: the file has no rows"),
        (gzip.compress(b""), "empty.tsv.gz", "empty.tsv.gz: the file has no rows"),
        (whole[:-200], "cut.tsv.gz", "cut.tsv.gz: the gzip file is cut short"),
        (whole + b"more", "damaged.tsv", "damaged.tsv: not a valid gzip file"),
        (b"PK\x03\x04" + bytes(50), "log.tsv.zip", "log.tsv.zip: a zip archive, which is not supported; unpack it"),
    ):
        (folder / name).write_bytes(content)
        one_line(*run(folder, name), message)
        assert nothing_was_made(folder)


@pytest.mark.parametrize("change", [lambda text: text[: len(text) // 2], lambda text: text * 2])
def test_a_log_that_is_another_one_while_it_is_read(folder, monkeypatch, change):
    """It is as it was before and after: its sums alone would not tell."""
    path, read = folder / "log.tsv", log_example_gen.ingest
    lines = ["".join(f"{line}\n" for line in GOOD)]

    def meanwhile(*arguments):
        path.write_text(change(lines[0]))
        try:
            return read(*arguments)
        finally:
            path.write_text(lines[0])

    monkeypatch.setattr(log_example_gen, "ingest", meanwhile)
    for _ in range(2):  # nor is it taken from the cache
        one_line(*run(folder, GOOD), "log.tsv: the file changed while it was read; stop the program that writes to it")
        assert nothing_was_made(folder)


@pytest.mark.slow
def test_an_output_folder_that_is_removed_while_a_run_works_in_it(folder, monkeypatch):
    read = log_example_gen.ingest

    def meanwhile(*arguments):
        shutil.rmtree(folder / "out")
        return read(*arguments)

    monkeypatch.setattr(log_example_gen, "ingest", meanwhile)
    one_line(*run(folder, GOOD), "out: the output folder was removed, or replaced, during the run; run again")


def test_a_metadata_database_that_is_damaged(folder):
    (folder / "out" / "tfx").mkdir(parents=True)
    (folder / "out" / "tfx" / "metadata.sqlite").write_bytes(b"no database at all" * 100)
    one_line(*run(folder, GOOD), "metadata.sqlite: damaged (file is not a database); remove")


def test_a_file_that_disagrees_with_the_configuration(folder):
    header = ["label,n,d", *(line.replace("\t", ",") for line in GOOD)]
    one_line(*run(folder, header, format="csv", header=True), "the header lacks c")
    header[0] = "label,n,c,c"
    one_line(*run(folder, header, format="csv", header=True), "the header names c twice")
    one_line(*run(folder, GOOD, format="parquet"), "a text, but data.format is parquet")
    one_line(*run(folder, ["label\tn\tc", *GOOD[:50]]), "the first is line 1: n: 'n' is not a number")
    one_line(*run(folder, [line.replace("\t", ",") for line in GOOD]), "expected 3 columns, found 1")


def test_logs_that_no_model_can_learn_from(folder):
    one_line(*run(folder, [f"1\t{row}\ta" for row in range(100)]), "label is 1 in all 80 train rows")
    one_line(*run(folder, [f"{row % 2}\t\ta" for row in range(100)]), "Always missing in all 80 training rows: n;")
    one_line(*run(folder, GOOD[:3]), "split has no rows")
    assert nothing_was_made(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read the configuration: Is a directory"),
        (b"name: \xe9", "not a text file (invalid UTF-8)"),
        (b"\xff\xfea\0", "not a text file (invalid UTF-8)"),
        (b"a: [1", "not valid YAML"),
        (b"a: \0", "not valid YAML"),
        (b"a: 2024-02-30", "not valid YAML: day is out of range"),
        (b"a: " + b"[" * 3000, "not valid YAML"),
        (b"", "expected a mapping"),
        (b"- name", "expected a mapping"),
        (b"modle: {name: lr}", "this key is required"),
        (yaml.safe_dump({**CONFIG, "modle": 1}).encode(), "modle: unknown key"),
        (yaml.safe_dump({**CONFIG, "seed": "one"}).encode(), "seed: Input should be a valid integer"),
        (yaml.safe_dump({**CONFIG, "features": "n"}).encode(), "features: Input should be a valid list"),
        (yaml.safe_dump({**CONFIG, "evaluation": {"slices": ["a\nb"]}}).encode(), "a b is not a feature column"),
        (yaml.safe_dump({**CONFIG, "model": {"name": "gpt"}}).encode(), "gpt"),
        (yaml.safe_dump({**CONFIG, "data": {"columns": ["I1..I999999999"]}}).encode(), "should name 1 to 100000"),
    ],
)
def test_files_that_are_no_configuration(folder, content, message):
    (folder / "log.tsv").write_text("\n".join(GOOD))
    path = folder / "other.yaml"
    path.mkdir() if content is None else path.write_bytes(content)
    one_line(*call("run", path, "--data", folder / "log.tsv", "--output", folder / "out"), message)
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("training.epoch=2", "training.epoch: unknown key"),
        ("trainin.epochs=2", "trainin: unknown key"),
        ("model.depth=2", "no hyperparameter 'depth'"),
        ("training.epochs=many", "training.epochs: Input should be a valid integer"),
        ("training.epochs", "expected KEY=VALUE"),
        ("name.first=1", "'name' is not a group of settings"),
        ("features.0.top_k=1", "'features' is not a group of settings"),
        ("training.epochs=[1", "the value is not valid YAML"),
    ],
)
def test_settings_that_do_not_exist_or_fit(folder, setting, message):
    one_line(*run(folder, GOOD, "--set", setting), message)
    assert not (folder / "out").exists()


def test_an_output_folder_that_is_a_file_or_below_one(folder):
    (folder / "file").touch()
    (folder / "log.tsv").write_text("\n".join(GOOD))
    for output in (folder / "file", folder / "file" / "deeper"):
        found = call("run", folder / "config.yaml", "--data", folder / "log.tsv", "--output", output)
        one_line(*found, "a file is in the way of the output folder")


def test_a_second_run_in_the_same_folder_is_refused(folder):
    (folder / "out").mkdir()
    with open(folder / "out" / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as the first run holds it
        one_line(*run(folder, GOOD), "another run works in this folder")
    assert not (folder / "out" / "tfx").exists()


def test_serving_what_or_where_nobody_can(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        found = call("serve", "--model_base_path", tmp_path, "--rest_api_port", port)
        one_line(*found, f"Cannot listen on 127.0.0.1:{port}: Address already in use; choose another --rest_api_port")
    for port in (-1, 65536):
        one_line(
            *call("serve", "--model_base_path", tmp_path, "--rest_api_port", port), "a port is a number from 0 to 65535"
        )
    found = call("serve", "--model_base_path", tmp_path, "--rest_api_port", 1, "--host", "256.0.0.1")
    one_line(*found, "Cannot listen on 256.0.0.1:1")


@pytest.mark.slow
def test_a_real_process_says_its_stages_and_one_line(folder):
    """What libraries write to the terminal themselves does not pass through the calls above."""
    (folder / "log.tsv").write_text("\n".join(f"0\t{row}\ta" for row in range(50)))
    arguments = ("run", folder / "config.yaml", "--data", folder / "log.tsv", "--output", folder / "out")
    process = start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        printed, said = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 2 and printed == ""
    others = [line for line in said.splitlines() if not line.startswith("[")]
    assert len(others) == 1 and others[0].startswith("ctrpipe: label is 0 in all 40 train rows"), said


@pytest.mark.slow
def test_a_loss_that_is_not_finite_ends_the_run_before_there_is_a_model(folder):
    """AUC would take the predictions, all NaN, for ties."""
    steps = ("training.learning_rate=1e30", "training.gradient_clip_norm=null", "training.monitor=auc")
    settings = [f"--set={setting}" for setting in (*steps, "model={name: dcn_v2, embedding_dim: 4}")]
    one_line(*run(folder, GOOD, *settings), "dcn_v2: all 20 predictions came out NaN or infinite in epoch 1")
    assert nothing_was_made(folder)
