"""One text and many candidates: the text is read once, and the answers are those of the text repeated."""

import shutil

import numpy as np
import pytest

from common.errors import InputError
from serving.check import check_servable
from serving.client import RestClient
from serving.client.grpc_client import GrpcClient
from serving.export import candidates_of
from serving.loader import Servable
from serving.server import ServerOptions, running_server
from tests.serving.text_servable import COLUMNS, SPEC, VERSION, copied, rows, save, shared_servable
from transforms.log.raw_arrays import raw_arrays

pytestmark = pytest.mark.slow

ORDINARY = {"serving_candidates": "serving_raw", "serving_candidates_packed": "serving_packed"}


@pytest.fixture(scope="module")
def folder(shared_folder):
    return shared_servable(shared_folder)


@pytest.fixture(scope="module")
def version(folder):
    return folder / VERSION


@pytest.fixture(scope="module")
def servable(version):
    servable = Servable(version)
    yield servable
    servable.close()


def requests(servable: Servable, count: int) -> dict[str, tuple[dict, dict]]:
    """By signature, a request of candidates, and the same with the text repeated."""
    raw = raw_arrays(rows(count, 3), SPEC)
    shared = candidates_of(raw, servable.run("transform_raw", raw), SPEC)
    return {
        signature: (inputs, {name: np.repeat(value, count // len(value), axis=0) for name, value in inputs.items()})
        for signature, inputs in shared.items()
    }


@pytest.mark.parametrize("signature", ORDINARY)
@pytest.mark.parametrize("count", [1, 100])
def test_candidates_get_what_they_would_get_each_with_the_text(servable, signature, count):
    inputs, repeated = requests(servable, count)[signature]
    found, expected = servable.run(signature, inputs)["ctr"], servable.run(ORDINARY[signature], repeated)["ctr"]
    assert found.shape == (count,)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert count == 1 or np.ptp(found) > 0.01


def test_the_text_counts(servable):
    inputs, _ = requests(servable, 5)["serving_candidates"]
    other = {**inputs, **{name: np.array([b"blue hat"], object) for name in COLUMNS}}
    difference = servable.run("serving_candidates", inputs)["ctr"] - servable.run("serving_candidates", other)["ctr"]
    assert np.abs(difference).max() > 1e-3


def test_servers_take_it_over_both_protocols(version, servable):
    inputs, _ = requests(servable, 100)["serving_candidates"]
    expected = servable.run("serving_candidates", inputs)["ctr"]
    with running_server(ServerOptions(version.parent, "ctr")) as server:
        rest = RestClient(f"{server.rest}/v1/models/ctr")
        grpc = GrpcClient(server.grpc, "ctr")
        for client in (rest, grpc):
            with client:
                found = client.predict(inputs, "serving_candidates")["ctr"]
                np.testing.assert_allclose(found, expected, atol=1e-6)
                several = {**inputs, "title": np.array([b"red", b"hat"], object)}
                with pytest.raises(InputError, match="expected shape .1..*one_text_for_all_candidates"):
                    client.predict(several, "serving_candidates")
                with pytest.raises(InputError, match="400|INVALID_ARGUMENT"):
                    client.predict({**inputs, "shop": inputs["shop"][:3]}, "serving_candidates")


def test_the_export_is_checked_with_its_candidates(version, tmp_path):
    assert check_servable(version) < 1e-6
    other = copied(version, tmp_path)
    path = other / "assets.extra" / "golden.npz"
    with np.load(path) as golden:
        values = dict(golden)
    np.savez(path, **{**values, "candidates": values["candidates"] + 0.01})
    with pytest.raises(InputError, match="differ by 1.00e-02"):
        check_servable(other)


def test_a_server_that_batches_loads_it(version):
    with running_server(ServerOptions(version.parent, "ctr", enable_batching=True)) as server:
        with RestClient(f"{server.rest}/v1/models/ctr") as client:
            assert client.status()[0].state == "AVAILABLE"


def test_no_candidates_where_features_are_written_into_the_text(folder, tmp_path):
    version = save(shutil.copytree(folder, tmp_path / "copy"), "numbert")
    servable = Servable(version)
    try:
        assert not set(ORDINARY) & set(servable.signatures)
    finally:
        servable.close()
    assert check_servable(version) < 1e-6
