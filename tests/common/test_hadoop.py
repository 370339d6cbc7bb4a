"""Messages on a machine without Hadoop's client. tests/hdfs has the tests with a server."""

import os
import zipfile

import pytest

from ctrpipe.common import stores
from ctrpipe.common.stores import StoreError


@pytest.fixture(autouse=True)
def java(monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere/java")


def test_a_machine_without_hadoop_is_told_so(monkeypatch, tmp_path):
    for name in ("CLASSPATH", "HADOOP_HOME", "LIBHDFS_OPTS"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StoreError, match=r"hdfs://node:8020: Hadoop's client is not found; install Java and Hadoop"):
        stores.read_bytes("hdfs://node:8020/log.csv")
    assert os.environ["LIBHDFS_OPTS"] == "-Xrs"  # or Java ends the process at an interrupt


def test_the_class_path_is_asked_of_hadoops_own_command(monkeypatch, tmp_path):
    with zipfile.ZipFile(tmp_path / "hadoop-common.jar", "w") as jar:
        jar.writestr("org/apache/hadoop/conf/Configuration.class", b"")
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "hadoop"
    command.write_text(f'#!/bin/sh\n[ "$*" = "classpath --glob" ] && echo "/etc/hadoop:{tmp_path}/hadoop-common.jar"\n')
    command.chmod(0o755)
    for name, value in (("CLASSPATH", ""), ("LIBHDFS_OPTS", ""), ("HADOOP_HOME", str(tmp_path))):
        monkeypatch.setenv(name, value)
    stores._Hadoop().find("node:8020")
    assert os.environ["CLASSPATH"] == f"/etc/hadoop:{tmp_path}/hadoop-common.jar"
    command.write_text("#!/bin/sh\necho /etc/hadoop\n")
    monkeypatch.setenv("CLASSPATH", "")
    with pytest.raises(StoreError, match="CLASSPATH names no jar of Hadoop's client"):
        stores._Hadoop().find("node:8020")


def test_a_class_path_without_hadoop_is_told_before_libhdfs_crashes(monkeypatch, tmp_path):
    with zipfile.ZipFile(tmp_path / "other.jar", "w") as jar:
        jar.writestr("org/example/Other.class", b"")
    monkeypatch.setenv("LIBHDFS_OPTS", "-Xmx64m")
    for path in (f"{tmp_path}/*", f"/nowhere.jar{os.pathsep}{tmp_path}/other.jar"):
        monkeypatch.setenv("CLASSPATH", path)
        with pytest.raises(StoreError, match="CLASSPATH names no jar of Hadoop's client"):
            stores.read_bytes("hdfs://node:8020/log.csv")
    assert os.environ["LIBHDFS_OPTS"] == "-Xmx64m -Xrs"
