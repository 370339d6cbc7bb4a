"""Moving labels in a model config file, before a server that takes changes as TF Serving does (V3, V6, V7)."""

import fcntl
import json
import os
import pathlib
import signal
import stat
import subprocess
import sys

import pytest
from google.protobuf import text_format

from ctrpipe.common.errors import InputError
from ctrpipe.serving.client import VersionStatus
from ctrpipe.serving.client.labels import ModelConfig, ModelServerConfig, ServedLabels, read_config
from tests.e2e.small_run import call, one_line

ROOT = pathlib.Path(__file__).parents[2]
CONFIG = """model_config_list {
  config { name: "ctr" base_path: "/models/ctr" model_platform: "tensorflow" %s }  # clicks
  config { name: "cvr" base_path: "/models/cvr" model_platform: "tensorflow" }
}
"""


class Server:
    """Loads what the policy names, some looks later; refuses a label on what is not loaded.

    Args:
        file: The file that it looks at by itself with each question, where `polls`.
        pushed: The versions under the base path.
        broken: Versions that do not load.
    """

    address = "server"

    def __init__(self, file: pathlib.Path, pushed: list[int], broken: tuple[int, ...] = (), polls: bool = False):
        self.states: dict[int, str] = {}
        self.labels: dict[str, int] = {}
        self.reloads: list[str] = []
        self.pushed = pushed
        self._broken = broken
        self._file = file if polls else None
        self.reload(read_config(file))
        self.look()

    def reload(self, config: ModelServerConfig) -> None:
        self.reloads.append(text_format.MessageToString(config))
        [entry] = [one for one in config.model_config_list.config if one.name == "ctr"]
        policy = entry.model_version_policy
        wanted = list(policy.specific.versions) or sorted(self.pushed)[-max(policy.latest.num_versions, 1) :]
        for version in wanted:
            if self.states.get(version) != "AVAILABLE":
                self.states[version] = "LOADING"
        for version in set(self.states) - set(wanted):
            self.states[version] = "END"
        for version in entry.version_labels.values():
            if self.states.get(version) != "AVAILABLE":
                raise InputError(f"Request to assign label to version {version} of model ctr")
        self.labels = dict(entry.version_labels)

    def look(self) -> None:
        for version, state in self.states.items():
            if state == "LOADING":
                self.states[version] = "failed" if version in self._broken else "AVAILABLE"

    def status(self) -> list[VersionStatus]:
        found = [
            VersionStatus(version, "END", "UNKNOWN", "no signature")
            if state == "failed"
            else VersionStatus(version, state)
            for version, state in self.states.items()
        ]
        if self._file:
            self.reload(read_config(self._file))
        self.look()
        return found

    def version_of(self, label: str) -> int:
        if self._file:
            self.reload(read_config(self._file))
        if label not in self.labels:
            raise InputError(f"Unrecognized servable version label: {label}")
        return self.labels[label]

    @property
    def available(self) -> list[int]:
        return sorted(version for version, state in self.states.items() if state == "AVAILABLE")


@pytest.fixture(autouse=True)
def no_waits(monkeypatch):
    monkeypatch.setattr("ctrpipe.serving.client.labels._POLL_SECONDS", 0.0)


def write(folder: pathlib.Path, more: str = "") -> pathlib.Path:
    file = folder / "models.config"
    file.write_text(CONFIG % more)
    return file


def labels_of(entry: ModelConfig) -> dict[str, int]:
    return dict(entry.version_labels)


def specific(entry: ModelConfig) -> list[int]:
    return list(entry.model_version_policy.specific.versions)


@pytest.mark.parametrize("polls", [False, True])
def test_a_canary_from_the_first_push_to_the_roll_back(tmp_path, polls):
    file = write(tmp_path)
    server = Server(file, [12], polls=polls)
    served = ServedLabels(file, "ctr", server, None if polls else server.reload)
    served.move({"stable": 12})
    server.pushed.append(13)
    server.look()
    assert server.available == [12]  # a push alone takes no traffic
    served.move({"canary": 13})
    assert server.labels == {"stable": 12, "canary": 13} and server.available == [12, 13]
    served.move({"stable": 13})
    assert server.labels == {"stable": 13, "canary": 13} and server.available == [12, 13]
    served.roll_back()
    assert server.labels == {"stable": 12, "canary": 13} == labels_of(served.current())
    served.roll_back()
    assert server.labels == {"stable": 13, "canary": 13}
    served.move({}, ["canary"])
    server.pushed.append(14)
    served.move({"canary": 14})
    assert server.labels == {"stable": 13, "canary": 14} and server.available == [13, 14]


def test_a_label_never_points_at_what_is_not_available(tmp_path):
    file = write(tmp_path)
    server = Server(file, [12, 13], broken=(13,))
    server.states = {12: "AVAILABLE"}
    server.reloads.clear()
    ServedLabels(file, "ctr", server, server.reload).move({"stable": 12})
    before = file.read_text()
    with pytest.raises(
        InputError, match=r"^server: version 13 of model ctr did not load \(no signature\); no label has"
    ):
        ServedLabels(file, "ctr", server, server.reload).move({"stable": 13})
    assert file.read_text() == before and server.labels == {"stable": 12} and server.available == [12]
    assert not any("value: 13" in text for text in server.reloads)  # no label was tried on it
    assert server.reloads[-1] == server.reloads[0]  # and the server was told to forget it


def test_a_version_that_never_comes_leaves_the_file_as_it_was(tmp_path):
    file = write(tmp_path)
    server = Server(file, [12])
    server.look = lambda: None
    served = ServedLabels(file, "ctr", server, server.reload, wait_seconds=0.05)
    with pytest.raises(InputError, match="version 13 of model ctr is LOADING after 0.05 s, .*see the server's log"):
        served.move({"canary": 13})
    deaf = ServedLabels(file, "ctr", server, None, wait_seconds=0.05)
    with pytest.raises(InputError, match="version 14 of model ctr is not known after .*--model_config_file_poll_wait"):
        deaf.move({"canary": 14})
    assert "# clicks" in file.read_text() and os.listdir(tmp_path) == ["models.config"]


def test_a_server_that_does_not_read_the_file_is_said(tmp_path):
    file = write(tmp_path)
    server = Server(file, [12])
    with pytest.raises(
        InputError, match="is written, but label 'stable' is still unknown after 0.05 s; does it run with"
    ):
        ServedLabels(file, "ctr", server, None, wait_seconds=0.05).move({"stable": 12})


def test_a_refused_reload_is_undone(tmp_path):
    file = write(tmp_path)
    server = Server(file, [12])

    def refuse(config):
        raise InputError("server: no")

    with pytest.raises(InputError, match="^server: no$"):
        ServedLabels(file, "ctr", server, refuse).move({"stable": 12})
    assert file.read_text() == CONFIG % "" and not (tmp_path / "models.config.previous").exists()


def test_the_policy_keeps_what_labels_need(tmp_path):
    for policy, expected in [
        ("", [12, 15]),  # what was served without labels, and what the label names
        ("model_version_policy { latest { num_versions: 2 } }", [12, 14, 15]),
        ("model_version_policy { specific { versions: 9 versions: 12 } }", [9, 12]),
    ]:
        file = write(tmp_path, policy)
        (tmp_path / "ctr").mkdir(exist_ok=True)
        for version in (12, 14, 15):
            (tmp_path / "ctr" / str(version)).mkdir(exist_ok=True)
        file.write_text(file.read_text().replace("/models/ctr", str(tmp_path / "ctr")))
        assert specific(ServedLabels(file, "ctr").move({"stable": 12})) == expected
    file = write(tmp_path, "model_version_policy { all {} }")
    moved = ServedLabels(file, "ctr").move({"stable": 12})
    assert moved.model_version_policy.HasField("all") and labels_of(moved) == {"stable": 12}


def test_each_model_has_a_past_of_its_own(tmp_path):
    file = write(tmp_path)
    ServedLabels(file, "ctr").move({"stable": 1})
    ServedLabels(file, "cvr").move({"stable": 7})
    ServedLabels(file, "ctr").move({"stable": 2})
    assert labels_of(ServedLabels(file, "ctr").roll_back()) == {"stable": 1}
    assert labels_of(ServedLabels(file, "cvr").current()) == {"stable": 7}
    first = ServedLabels(file, "cvr").roll_back()
    assert labels_of(first) == {} and not first.HasField("model_version_policy")


def test_the_same_change_twice_is_rolled_back_to_what_was_before_it(tmp_path):
    file = write(tmp_path)
    server = Server(file, [12, 13])
    served = ServedLabels(file, "ctr", server, server.reload)
    served.move({"stable": 12})
    for _ in range(2):
        served.move({"stable": 13})
    served.roll_back()
    assert server.labels == {"stable": 12}


def test_the_same_change_twice_keeps_the_versions_that_a_roll_back_needs(tmp_path):
    file = write(tmp_path)
    server = Server(file, [12, 13])
    server.states = {12: "AVAILABLE"}
    served = ServedLabels(file, "ctr", server, server.reload)
    served.move({"stable": 12})
    for _ in range(2):
        assert specific(served.move({"stable": 13})) == [12, 13] and server.available == [12, 13]
    assert labels_of(served.roll_back()) == {"stable": 12}


def test_the_file_keeps_its_permissions_and_everything_else(tmp_path):
    file = write(tmp_path)
    file.chmod(0o640)
    (tmp_path / "link").symlink_to(file)
    ServedLabels(tmp_path / "link", "ctr").move({"stable": 1})
    assert stat.S_IMODE(file.stat().st_mode) == 0o640 and (tmp_path / "link").is_symlink()
    other = read_config(file).model_config_list.config[1]
    assert other == read_config(write(tmp_path)).model_config_list.config[1]


def test_two_changes_at_once_are_one_line(tmp_path):
    file = write(tmp_path)
    folder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    with pytest.raises(InputError, match="another ctrpipe canary is changing it"):
        ServedLabels(file, "ctr").move({"stable": 1})
    os.close(folder)
    ServedLabels(file, "ctr").move({"stable": 1})


def test_what_cannot_be_done_is_one_line(tmp_path):
    file = write(tmp_path)
    (tmp_path / "ctr" / "12").mkdir(parents=True)
    here = tmp_path / "here.config"
    here.write_text(file.read_text().replace("/models/ctr", str(tmp_path / "ctr")))
    typo = tmp_path / "typo.config"
    typo.write_text("model_config_list { confg {} }")

    def label(*arguments, config=file):
        return call("canary", *arguments, "--model_config_file", config)

    one_line(
        *label("ctr", config=tmp_path / "absent"), "cannot be read (No such file or directory); it is, for example,"
    )
    one_line(*label("ctr", config=typo), 'has no field named "confg"')
    one_line(*label("other"), "model 'other' is not in it; it has ctr, cvr")
    one_line(*label("ctr", "--rollback"), "no change of model ctr is kept here to roll back")
    one_line(*label("ctr", "canary=1", "--rollback"), "--rollback takes no labels")
    one_line(*label("ctr", "--remove", "canary"), "model ctr has no label 'canary'; it has none")
    one_line(*label("ctr", "canary=13", config=here), "version 13 of model ctr is not here; it has 12")
    for wrong in ("canary", "canary=x", "canary=-1", f"canary={2**63}"):
        one_line(*label("ctr", wrong), f"'{wrong}': write each label once, as LABEL=VERSION: canary=13")
    for wrong in ("=1", "a/b=1", "a b=1"):
        one_line(*label("ctr", wrong), "give it a name without '/', ':' and spaces")
    one_line(*label("ctr", "a=1", "--remove", "a"), "label 'a'")
    one_line(*label("ctr", "--grpc", "127.0.0.1:1", "--url", "http://127.0.0.1:2"), "not both")


def test_the_command_shows_what_is_and_what_was(tmp_path):
    file = write(tmp_path)
    show = ["canary", "ctr", "--model_config_file", file]
    assert call(*show) == (0, "no labels\npolicy: the latest 1\n")
    assert call(*show, "stable=12")[0] == 0
    expected = "canary\t13\nstable\t12\npolicy: specific versions 12, 13\n--rollback: stable=12, specific versions 12\n"
    assert call(*show, "canary=13") == (0, expected) == call(*show)
    undone = "stable\t12\npolicy: specific versions 12, 13\n--rollback: canary=13 stable=12, specific versions 12, 13\n"
    assert call(*show, "--rollback") == (0, undone)
    assert call(*show, "--remove", "stable")[1].startswith("no labels\npolicy: specific versions 12, 13\n")


# Moves `stable` from 2 to 3 in a copy of this process that dies as it is about to rename or remove its Nth file.
KILLED = """
import json, os, pathlib, signal, sys
from tests.serving.test_labels import Server, labels_of, write
from ctrpipe.serving.client.labels import ServedLabels

def die_at(number):
    seen = [0]
    def hook(event, arguments):
        if event in ("os.rename", "os.remove", "os.truncate"):
            seen[0] += 1
            if seen[0] == number:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)

found, number = [], 0
while True:
    number += 1
    folder = pathlib.Path(sys.argv[1], str(number))
    folder.mkdir()
    file = write(folder)
    server = Server(file, [2])
    server.pushed[:] = [1, 2, 3]
    served = ServedLabels(file, "ctr", server, server.reload)
    for version in (1, 2):
        served.move({"stable": version})
    child = os.fork()
    if not child:
        try:
            die_at(number)
            served.move({"stable": 3})
            os._exit(0)
        finally:
            os._exit(1)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    before = labels_of(ServedLabels(file, "ctr").previous())
    now = labels_of(ServedLabels(file, "ctr").current())
    ServedLabels(file, "cvr").move({"stable": 7})  # whoever comes next ends what was begun
    policy = list(ServedLabels(file, "ctr").current().model_version_policy.specific.versions)
    again = [labels_of(ServedLabels(file, "ctr").roll_back()) for _ in range(2)]
    found.append([ended, now, before, again, policy, sorted(os.listdir(folder))])
    if not ended:
        break
print(json.dumps(found))
"""


@pytest.mark.slow
def test_a_change_that_is_killed_at_any_point_is_whole_or_was_never_begun(tmp_path):
    command = [sys.executable, "-c", KILLED, tmp_path]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout)
    assert [ended for ended, *_ in found] == [-signal.SIGKILL] * (len(found) - 1) + [0] and len(found) >= 4
    one, two, three = ({"stable": version} for version in (1, 2, 3))
    never, whole = (two, one, [one, two]), (three, two, [two, three])
    states = [(now, before, again) for _, now, before, again, *_ in found]
    begun = states.index(whole)
    assert begun >= 3 and states == [never] * begun + [whole] * (len(found) - begun)
    assert {tuple(policy) for *_, policy, _ in found[:begun]} == {(1, 2)}  # not what was loaded for the change
    for *_, left in found:
        assert [name for name in left if not name.startswith(".")] == ["models.config", "models.config.previous"]
