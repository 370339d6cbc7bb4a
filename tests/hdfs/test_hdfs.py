"""Hadoop's servers in one process, `make hdfs`, and ctrpipe's commands with their URLs.

Every client is a process of its own: Java stays in a process that has read from Hadoop, and survives no fork.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid

import pyarrow.parquet
import pytest

from benchmarks.harness.store_servers import ROOT, free_port, running

LIKE = "tests/common/test_stores.py::test_what_is_written_is_read_in_any_order"
pytestmark = [pytest.mark.slow, pytest.mark.large(like=LIKE)]

HADOOP = ROOT / ".hdfs"
COMMAND = [str(pathlib.Path(sys.executable).with_name("ctrpipe"))]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A name node and a data node: the URL, and the environment of a client."""
    if not (HADOOP / ".installed").exists():
        pytest.skip("no Hadoop: run `make hdfs`")
    if shutil.which("java") is None:
        pytest.skip("no Java")
    port, folder = free_port(), tmp_path_factory.mktemp("hdfs")
    main = ["java", "-Xmx400m", "-cp", f"{HADOOP}/jars/*", "org.apache.hadoop.test.MiniDFSClusterManager"]
    environment = {
        **os.environ,
        "CLASSPATH": f"{HADOOP}/jars/*",
        "ARROW_LIBHDFS_DIR": str(HADOOP / "native"),
        "LIBHDFS_OPTS": "-Xmx256m",
        "CTRPIPE_CACHE": str(folder / "cache"),
        "CTRPIPE_STORE_RETRY_SECONDS": "20",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    with running([*main, "-nnport", str(port), "-datanodes", "1", "-format"], port, folder):
        yield f"hdfs://127.0.0.1:{port}", environment


@pytest.fixture
def place(server):
    """An empty folder: its URL, and client(code, *arguments), which runs Python in a process of its own."""
    url, environment = server

    def client(code, *arguments):
        head = "import os, signal, sys, time\nfrom ctrpipe.common import store_folders, stores\nurl = sys.argv[1]\n"
        command = [sys.executable, "-c", head + code, f"{url}/{name}", *map(str, arguments)]
        return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=100)

    name = uuid.uuid4().hex
    return f"{url}/{name}", client


def test_objects_are_written_found_read_replaced_and_removed(place):
    _, client = place
    done = client("""
top = url.rpartition("/")[0] + "/top-" + url.rpartition("/")[2]
stores.write_bytes(top, b"a file of the root")
assert stores.read_bytes(top) == b"a file of the root"
contents = os.urandom(9_000_000)
for name in ("day=2/b.bin", "day=10/a.bin"):
    stores.write_bytes(f"{url}/{name}", contents)
assert stores.read_bytes(f"{url}/day=2/b.bin") == contents
assert stores.matching(f"{url}/day=*/*.bin") == [f"{url}/day=2/b.bin", f"{url}/day=10/a.bin"]
stores.write_bytes(f"{url}/day=2/b.bin", b"new")
assert stores.read_bytes(f"{url}/day=2/b.bin") == b"new" and stores.state_of(f"{url}/day=2/b.bin")[0] == 3
assert stores.is_folder(f"{url}/day=2") and not stores.is_file(f"{url}/day=2") and not stores.is_file(f"{url}/none")
for work in (lambda: stores.read_bytes(f"{url}/none"), lambda: stores.state_of(f"{url}/day=2")):
    try:
        work()
    except FileNotFoundError:
        continue
    raise AssertionError
stores.delete(f"{url}/none")
stores.delete(f"{url}/day=2/b.bin")
assert [each for each, _ in stores.objects_below(url)] == [f"{url}/day=10/a.bin"]
""")
    assert done.returncode == 0, done.stderr
    assert "java" not in done.stderr  # no traces of what is not there


def test_a_file_is_not_seen_before_it_is_whole(place):
    _, client = place
    done = client("""
read, seen = stores._filesystem, []
class Slow:
    def __init__(self, client): self.client = client
    def __getattr__(self, name): return getattr(self.client, name)
    def open_output_stream(self, path, **options):
        stream = self.client.open_output_stream(path, **options)
        stream.flush()
        seen.extend(stores.objects_below(url))
        return stream
stores.write_bytes(f"{url}/first", b"1")
stores._filesystem = lambda place: Slow(read(place))
stores.write_bytes(f"{url}/version/manifest.json", b"{}")
assert seen == [(f"{url}/first", 1)], seen
""")
    assert done.returncode == 0, done.stderr


def test_an_interrupt_is_pythons_and_a_fork_is_told(place):
    _, client = place
    done = client("""
stores.write_bytes(f"{url}/x", b"1")
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)
except KeyboardInterrupt:
    print("interrupted")
if os.fork() == 0:
    try:
        stores.read_bytes(f"{url}/x")
    except stores.StoreError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
""")
    assert done.returncode == 0, done.stderr
    assert "interrupted" in done.stdout and "Java does not survive a fork" in done.stdout


def test_a_name_node_that_is_away_is_one_line(place, server):
    _, client = place
    done = client("""
for away, says in (("127.0.0.1:1", "the store does not answer (ConnectException: Connection refused)"),
                   ("none.invalid:8020", "no such host")):
    for work in (stores.read_bytes, stores.is_file, lambda u: list(stores.objects_below(u)), stores.delete,
                 lambda u: stores.write_bytes(u, b"1")):
        began = time.monotonic()
        try:
            print(work(f"hdfs://{away}/x"))
        except stores.StoreError as error:
            assert says in str(error) and "\\n" not in str(error), error
        else:
            raise AssertionError(away)
        assert time.monotonic() - began < 15
""")
    assert done.returncode == 0, done.stderr
    assert "java" not in done.stderr


def test_a_name_node_that_takes_a_connection_and_never_answers_is_one_line_in_time(place):
    _, client = place
    done = client("""
import socket
silent = socket.create_server(("127.0.0.1", 0))
address = f"127.0.0.1:{silent.getsockname()[1]}"
for work in (stores.read_bytes, stores.is_file, lambda u: stores.write_bytes(u, b"1")):
    began = time.monotonic()
    try:
        print(work(f"hdfs://{address}/x"))
    except stores.StoreError as error:
        assert "the store does not answer (SocketTimeoutException" in str(error) and "\\n" not in str(error), error
    else:
        raise AssertionError
    assert time.monotonic() - began < 40
""")
    assert done.returncode == 0, done.stderr


def test_a_killed_push_leaves_nothing_that_counts_and_the_next_one_completes_it(place, server, tmp_path):
    url, client = place
    for number in range(40):
        (tmp_path / f"{number}.bin").write_bytes(os.urandom(200_000))
    upload = "import pathlib\nstore_folders.upload(pathlib.Path(sys.argv[2]), url)\n"
    kill = (
        "import threading\ncount = 0\nwrite = stores.write_file\n"
        "def write_file(*args):\n    global count\n    write(*args)\n    count += 1\n"
        "    if count == 10: os.kill(os.getpid(), signal.SIGKILL)\nstores.write_file = write_file\n"
    )
    assert client(kill + upload, tmp_path).returncode == -signal.SIGKILL
    look = "store_folders.read_manifest(url)"
    assert "FileNotFoundError" in client(look).stderr
    assert client(upload, tmp_path).returncode == 0
    done = client(f"files = {look}\nassert len(files) == 40\nassert len(list(stores.objects_below(url))) == 41")
    assert done.returncode == 0, done.stderr


def test_the_second_writer_is_told_of_the_first(place):
    _, client = place
    done = client("""
with store_folders.one_writer(url):
    try:
        with store_folders.one_writer(url):
            raise AssertionError
    except stores.StoreError as error:
        assert "another process writes here" in str(error), error
with store_folders.one_writer(url):
    pass
""")
    assert done.returncode == 0, done.stderr


def test_commands_take_urls_of_hadoop(place, server, tmp_path):
    url, client = place
    _, environment = server

    def ctrpipe(*arguments):
        done = subprocess.run(
            [*COMMAND, *map(str, arguments)], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=400
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done

    ctrpipe("generate", "--rows", 4000, "--seed", 7, "--output", "log.tsv")
    put = "import pathlib\nstores.write_file(f'{url}/log.tsv', pathlib.Path(sys.argv[2]))"
    assert client(put, tmp_path / "log.tsv").returncode == 0
    ctrpipe("init", f"{url}/log.tsv", "--output", "ads.yaml")
    quick = ["--set=training.epochs=1", "--set=gates={rig: null}", "--set=model.name=lr"]
    ctrpipe("run", "ads.yaml", *quick, "--output", f"{url}/run")
    ctrpipe("score", "--model", f"{url}/run", "--input", f"{url}/log.tsv", "--output", f"{url}/scores")
    ctrpipe("score", "--model", f"{url}/run", "--input", "log.tsv", "--output", "scores")
    ctrpipe("report", f"{url}/run")
    here = rows_in(tmp_path / "scores")
    get = "import pathlib\nstore_folders.fetch_below(url + '/scores', pathlib.Path(sys.argv[2]))"
    assert client(get, tmp_path / "there").returncode == 0
    assert here.num_rows == 4000 and here.equals(rows_in(tmp_path / "there"))
    port = free_port()
    served = [f"--model_base_path={url}/run", "--model_name=ctr", f"--rest_api_port={port}", "--port=0"]
    with subprocess.Popen([*COMMAND, "serve", *served], env=environment, cwd=tmp_path) as process:
        try:
            until_it_listens(process, port)
            model = f"http://127.0.0.1:{port}/v1/models/ctr"
            ctrpipe("predict", "--url", model, "--input", f"{url}/log.tsv", "--rows", 3)
        finally:
            process.terminate()


def rows_in(folder):
    """The scored rows, without the log's name, in which they differ."""
    return pyarrow.parquet.read_table(folder / "part-00000-of-00001.parquet").drop_columns("file")


def until_it_listens(process, port):
    end = time.monotonic() + 100
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)
    raise AssertionError("serve does not listen")
