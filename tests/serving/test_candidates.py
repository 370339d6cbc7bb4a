"""One text and many candidates: the text is read once, with the same answers as for a repeated text.

test_raw_numbers.py has a model that takes none.
"""

import numpy as np
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.serving.client import RestClient
from ctrpipe.serving.client.grpc_client import GrpcClient
from ctrpipe.serving.export.export import candidates_of
from ctrpipe.serving.loader import Servable
from ctrpipe.serving.server import ServerOptions, running_server
from ctrpipe.serving.server.check import check_servable
from ctrpipe.transforms.log.raw_arrays import raw_arrays
from ctrpipe.transforms.log.spec import LogSpec
from tests.contract.rpc import model_config
from tests.serving import packed_servable
from tests.serving.text_servable import COLUMNS, SPEC, VERSION, copied, rows, shared_servable

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
    """By signature: a request with candidates, and the equal request with a repeated text."""
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


@pytest.fixture(scope="module")
def server(version, user_version, tmp_path_factory):
    """Serves both versions, as `ctr` and `user`."""
    config = tmp_path_factory.mktemp("config") / "models.config"
    config.write_text(model_config(ctr=(version.parent,), user=(user_version.parent,)))
    with running_server(ServerOptions(model_config_file=config, enable_model_warmup=False)) as found:
        yield found


def test_servers_take_it_over_both_protocols(server, servable):
    inputs, _ = requests(servable, 100)["serving_candidates"]
    expected = servable.run("serving_candidates", inputs)["ctr"]
    for client in (RestClient(f"{server.rest}/v1/models/ctr"), GrpcClient(server.grpc, "ctr")):
        with client:
            found = client.predict(inputs, "serving_candidates")["ctr"]
            np.testing.assert_allclose(found, expected, atol=1e-6)
            several = {**inputs, "title": np.array([b"red", b"hat"], object)}
            with pytest.raises(InputError, match="expected shape .1..*one_row_for_all_candidates"):
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


@pytest.mark.large(like="tests/serving/test_candidates.py::test_servers_take_it_over_both_protocols")
def test_a_server_that_batches_loads_it(version):
    with running_server(ServerOptions(version.parent, "ctr", enable_batching=True)) as server:
        with RestClient(f"{server.rest}/v1/models/ctr") as client:
            assert client.status()[0].state == "AVAILABLE"


ITEMS = LogSpec.model_validate(
    {
        "data": packed_servable.SPEC.data.model_dump(),
        "features": [
            {**one, "role": "item"} if one["columns"][0] in ("n2", "tags") else one
            for one in packed_servable.SPEC.model_dump()["features"]
        ],
    }
)


@pytest.fixture(scope="module")
def user_version(tmp_path_factory):
    """A version whose candidates have two columns; the user has all others."""
    return packed_servable.save(tmp_path_factory.mktemp("user"), ITEMS)


def test_bad_requests_of_candidates_are_one_line(server):
    raw = raw_arrays(packed_servable.rows(4, 3), ITEMS)
    shared = {name: raw[name][:1] for name in ITEMS.context_columns}
    inputs = {**raw, **shared}
    for client in (RestClient(f"{server.rest}/v1/models/user"), GrpcClient(server.grpc, "user")):
        with client:
            found = client.predict(inputs, "serving_candidates")["ctr"]
            joined = {**raw, **{name: np.repeat(values, 4) for name, values in shared.items()}}
            np.testing.assert_allclose(found, client.predict(joined)["ctr"], atol=1e-6)

            def refused(changed, message, client=client):
                with pytest.raises(InputError, match=message) as error:
                    client.predict(changed, "serving_candidates")
                assert "400" in str(error.value) or "INVALID_ARGUMENT" in str(error.value)
                assert "\n" not in str(error.value)

            refused({**inputs, "c1": raw["c1"][:2]}, "expected shape .1..*one_row_for_all_candidates")
            refused({name: values for name, values in inputs.items() if name != "tags"}, "tags")
            none = {name: values[:0] for name, values in raw.items() if name not in shared}
            refused({**inputs, **none}, "A request needs a candidate")
