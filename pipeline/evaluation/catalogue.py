"""Gates on the effective catalogue size that a model shows in the first places of its lists."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ctrpipe.pipeline.config import CatalogueBounds
from ctrpipe.pipeline.evaluation.gates import gate_row
from ctrpipe.pipeline.evaluation.lists import candidate_lists, shown_catalogue
from ctrpipe.transforms.log.lists import columns_of
from ctrpipe.transforms.log.payload import read_payload
from ctrpipe.transforms.log.spec import LogSpec


def catalogue_gates(
    bounds: CatalogueBounds,
    spec: LogSpec,
    files: Sequence[Path],
    probabilities: np.ndarray,
    last_blessed: np.ndarray | None,
) -> list[dict[str, Any]]:
    """Returns the gate table rows for the effective catalogue size (ECS); see `read_gates`.

    As in `ctrpipe ranking`, lists whose candidates all have the same label are left out.

    Args:
        bounds: The limits.
        spec: The description of the log.
        files: The payload files of the test rows.
        probabilities: The model's probabilities of the first task, [N].
        last_blessed: The last blessed model's probabilities, [N]; None for a first model.
    """
    columns = columns_of(spec, bounds.group, bounds.item)
    label = next(iter(spec.data.columns_by_task.values()))
    rows = pa.Table.from_batches(read_payload(files, [columns.group, columns.item, label]))
    known = rows[label].is_valid().to_numpy()
    rows, probabilities = rows.filter(pa.array(known)), probabilities[known]
    last_blessed = None if last_blessed is None else last_blessed[known]
    lists, _ = candidate_lists(rows[columns.group], rows[columns.item], rows[label].to_numpy())
    lists, kept = lists.only(lists.judged())
    if not lists.count:
        reason = f"no {columns.group} has a candidate with label 1 and one with 0"
        return [gate_row("ecs", "absolute", f"of lists by {columns.group}", None, False, reason)]
    shown = shown_catalogue(lists, lists.ranks(probabilities[kept]), bounds.k)
    gates = []
    if bounds.min is not None:
        gates.append(gate_row("ecs", "absolute", f"at least {bounds.min:g}", shown, shown >= bounds.min))
    if bounds.max_drop is not None:
        before = None if last_blessed is None else shown_catalogue(lists, lists.ranks(last_blessed[kept]), bounds.k)
        gates.append(_change(shown, before, bounds.max_drop))
    return gates


def _change(shown: float, before: float | None, most: float) -> dict[str, Any]:
    """Returns the gate row for the relative drop of the ECS against the last blessed model."""
    bound = f"at most {most:.1%} lower than the last blessed model's"
    if before is None:
        return gate_row("ecs", "change", bound, None, True, "no model has been blessed before")
    drop = 1 - shown / before
    said = f"{shown:.1f} after {before:.1f}: {max(drop, 0.0):.1%} lower"
    return gate_row("ecs", "change", bound, drop, drop <= most, said)
