"""The command `ctrpipe ranking`."""

import pathlib

import click

from ctrpipe.common.errors import InputError
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.lines import say
from ctrpipe.common.store_folders import results_at
from ctrpipe.pipeline.commands.options import MODEL, PATH_OR_URL


@click.command()
@click.argument("source", type=MODEL, metavar="RUN")
@click.option("--data", multiple=True, help="Labelled log: file or quoted glob; repeatable. Default: the test rows.")
@click.option("--group", help="Column that groups rows into lists. Default: user.")
@click.option(
    "--item",
    help="Candidate column. Default: the one that shares its vocabulary with a history, or the first with role: item.",
)
@click.option("--k", "depths", multiple=True, type=click.IntRange(1), help="The k of NDCG@k; repeatable. Default: 10.")
@click.option("--output", type=PATH_OR_URL, help="Folder or URL for ranking.json and ranking.html.")
def ranking(
    source: pathlib.Path,
    data: tuple[str, ...],
    group: str | None,
    item: str | None,
    depths: tuple[int, ...],
    output: pathlib.Path | str | None,
) -> None:
    """Evaluate how well a model ranks lists of candidates.

    \b
      ctrpipe ranking runs/mine --k 5 --k 10        on the run's test rows
      ctrpipe ranking runs/mine/models/ctr --data test.tsv --group session

    RUN is a finished run (pushed or not), a folder of versions, or a version. Prints hit rate, NDCG, MRR, GAUC,
    effective catalogue size and take-rate, for the order of the model and for the order by popularity.
    """
    load_tensorflow()
    # Lazy: TensorFlow, numpy and pyarrow take 4 s to import.
    from ctrpipe.pipeline.ranking.rank import rank
    from ctrpipe.pipeline.ranking.show import print_ranking, write_ranking
    from ctrpipe.pipeline.run.trained_model import find_model

    if isinstance(output, pathlib.Path) and output.is_file():
        raise InputError(f"--output {output}: a file; name a folder")
    ranked = rank(find_model(source), data, group, item, depths)
    print_ranking(ranked)
    if output:
        with results_at(output) as place:
            written = write_ranking(ranked, place.folder)
        say(f"Written: {', '.join(map(place.shown, written))}")
