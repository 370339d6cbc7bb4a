"""KDD Cup 2012, track 2: seven files, which a run joins."""

from typing import Any

from ctrpipe.pipeline.config.packaged_configs import configs_folder
from ctrpipe.pipeline.draft.sets.folder import KnownSet, SetFolder
from ctrpipe.transforms.kddcup2012.layout import find_tables, is_kddcup2012


def _draft(folder: SetFolder) -> dict[str, Any]:
    inner = next((path for path in [folder.path, *sorted(folder.path.iterdir())] if is_kddcup2012(path)), folder.path)
    find_tables(inner)
    extended = configs_folder() / "kddcup2012" / "cascading_deepfm.yaml"
    return {"extends": str(extended), "data": {"paths": [str(inner)]}}


KDDCUP2012 = KnownSet("KDD Cup 2012, track 2, whose files a run joins first", _draft)
