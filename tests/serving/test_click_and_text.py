"""One server of a click model and a text model: each answers, over both protocols and at once, as it does alone."""

import concurrent.futures

import numpy as np
import pytest

from ctrpipe.serving.client import RestClient
from ctrpipe.serving.client.grpc_client import GrpcClient
from ctrpipe.serving.loader import Servable
from ctrpipe.serving.server import parse_flags, running_server
from ctrpipe.transforms.log.raw_arrays import raw_arrays
from tests.serving import packed_servable, text_servable

pytestmark = pytest.mark.slow

CLIENTS, REQUESTS, ROWS = 8, 40, 33


@pytest.fixture(scope="module")
def versions(shared_folder):
    texts = text_servable.shared_servable(shared_folder) / text_servable.VERSION
    return {"clicks": packed_servable.shared_version(shared_folder), "texts": texts}


@pytest.fixture(scope="module")
def asked(versions):
    """By model: rows, and the answer of the model alone."""
    found = {}
    for (name, version), kind in zip(versions.items(), (packed_servable, text_servable), strict=True):
        servable = Servable(version)
        inputs = raw_arrays(kind.rows(ROWS, 3), kind.SPEC)
        found[name] = inputs, servable.run("serving_raw", inputs)["ctr"]
        servable.close()
    return found


@pytest.fixture(scope="module")
def server(versions, tmp_path_factory):
    models = [
        f'config {{ name: "{name}" base_path: "{version.parent}" model_platform: "tensorflow" }}'
        for name, version in versions.items()
    ]
    file = tmp_path_factory.mktemp("both") / "models.config"
    file.write_text(f"model_config_list {{ {' '.join(models)} }}")
    flags = [f"--model_config_file={file}", "--port=0", "--rest_api_port=0", f"--grpc_max_queued_calls={CLIENTS}"]
    with running_server(parse_flags(flags)) as addresses:
        yield addresses


@pytest.mark.parametrize("protocol", ["rest", "grpc"])
def test_both_models_answer_at_once_as_each_alone(server, asked, protocol):
    with (
        RestClient(f"{server.rest}/v1/models/clicks") if protocol == "rest" else GrpcClient(server.grpc, "clicks") as a,
        RestClient(f"{server.rest}/v1/models/texts") if protocol == "rest" else GrpcClient(server.grpc, "texts") as b,
    ):
        clients = {"clicks": a, "texts": b}

        def ask(number: int) -> None:
            name = ("clicks", "texts")[number % 2]
            inputs, expected = asked[name]
            found = clients[name].predict(inputs, "serving_raw")["ctr"]
            np.testing.assert_allclose(found, expected, atol=1e-6)

        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            assert len(list(pool.map(ask, range(REQUESTS)))) == REQUESTS
