"""What a user sees of a URL's folder on this machine is the URL."""

import pathlib

from ctrpipe.common.lines import say
from ctrpipe.common.progress import announce
from ctrpipe.common.store_folders import local_copy, work_folder
from ctrpipe.common.store_names import CACHE, show_as, with_urls


def test_a_line_names_the_url_that_was_given(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv(CACHE, str(tmp_path))
    for endpoint in ("", "http://127.0.0.1:9"):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        work, copy = work_folder("s3://logs/runs/a"), local_copy("s3://logs/runs/a")
        assert with_urls(f"{work}/x.html and {copy}") == "s3://logs/runs/a/x.html and s3://logs/runs/a"
        say(f"Report: {work}/report.html")
        say(f"Report: {copy}/report.html")  # written on this machine alone
        say(f"ctrpipe: {copy}: no model; all rows are in {work}/dead_letter", err=True, failed=True)
        announce(f"output in {work}")
        told = capsys.readouterr()
        assert told.out == f"Report: s3://logs/runs/a/report.html\nReport: {copy}/report.html\n"
        failed, progress = told.err.splitlines()
        assert failed == f"ctrpipe: s3://logs/runs/a: no model; all rows are in {work}/dead_letter"
        assert progress.endswith("output in s3://logs/runs/a")
    account = work_folder("abfs://box@account.dfs.core.windows.net/runs")
    assert with_urls(str(account)) == "abfs://box@account.dfs.core.windows.net/runs"
    assert with_urls(f"{tmp_path}/held/x") == f"{tmp_path}/held/x"


def test_a_line_names_the_query_that_was_given():
    data = pathlib.Path("data")
    show_as(data, "query-0123456789abcdef/part-00000.parquet", "delta:shop@7")
    show_as(data, "query-fedcba9876543210", "duckdb:select 1")
    assert with_urls("rows of /tmp/a/query-0123456789abcdef/part-00000.parquet: row 3") == "rows of delta:shop@7: row 3"
    assert with_urls("data/query-fedcba9876543210/part-00002.parquet") == "duckdb:select 1/part-00002.parquet"


def test_a_query_is_named_where_its_folder_has_blanks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = pathlib.Path("my runs", "the (second)", "data")
    show_as(folder, "query-00112233aabbccdd/part-00000.parquet", "duckdb:select 2")
    for written in (folder, folder.absolute()):
        line = f"rows of {written}/query-00112233aabbccdd/part-00000.parquet: row 3"
        assert with_urls(line) == "rows of duckdb:select 2: row 3"
