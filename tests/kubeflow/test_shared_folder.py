"""The shared folder of a pipeline's pods in a store: what a pod uploads of what it has downloaded and made."""

import pytest

from ctrpipe.common import stores
from ctrpipe.pipeline.kubeflow.shared_folder import shared_folder

pytestmark = pytest.mark.slow  # a server starts in seconds


def contents(url: str) -> dict[str, bytes]:
    return {found.removeprefix(f"{url}/"): stores.read_bytes(found) for found, _ in stores.objects_below(url)}


def test_only_files_that_have_changed_are_uploaded_and_files_that_are_gone_are_deleted(s3):
    for name in ("kept", "changed", "gone", "not_wanted"):
        stores.write_bytes(f"{s3.url}/{name}", b"old")
    with shared_folder(s3.url) as folder:
        folder.fetch(lambda name: name != "not_wanted")
        (folder.path / "changed").write_text("longer")
        (folder.path / "gone").unlink()
        (folder.path / "made").write_text("made")
        stores.write_bytes(f"{s3.url}/kept", b"by another pod meanwhile")
    expected = {"kept": b"by another pod meanwhile", "changed": b"longer", "made": b"made", "not_wanted": b"old"}
    assert contents(s3.url) == expected


def test_a_step_that_fails_uploads_nothing(s3):
    with pytest.raises(RuntimeError, match="the step"), shared_folder(s3.url) as folder:
        (folder.path / "half").write_text("half")
        raise RuntimeError("the step fails")
    assert contents(s3.url) == {}
