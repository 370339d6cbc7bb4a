"""Runs this project's preprocessing in a separate process: the pipeline up to Transform, as in `ctrpipe sweep`.

    python -m benchmarks.harness.ours_preprocess '{"config": {...}, "file": ..., "folder": ...}'

`config` is a run's configuration; the pipeline writes to `folder`. Prints the paths of the transform graph, the checked
log and the packed validation rows, and the feature map.
"""

import json
import pathlib
import sys
from typing import Any

from ctrpipe.common.output_folder import check_output, one_run_at_a_time
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.run.artifacts import Artifacts
from ctrpipe.pipeline.run.run import transform


def main(request: dict[str, Any]) -> dict[str, Any]:
    config, folder = RunConfig.model_validate(request["config"]), pathlib.Path(request["folder"])
    check_output(folder)
    with one_run_at_a_time(folder):
        done = transform(config, [request["file"]], folder)
    artifacts = Artifacts(folder / "tfx" / "metadata.sqlite", config.name)
    return {
        "transform_graph": str(artifacts.folder("LogTransform", "transform_graph")),
        "examples": str(artifacts.folder("LogExampleGen", "examples")),
        "packed": str(artifacts.folder("LogTransform", "transformed_examples")),
        "feature_map": done.feature_map.to_json(),
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
