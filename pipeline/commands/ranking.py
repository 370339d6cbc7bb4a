"""`ctrpipe ranking`."""

import pathlib

import click

from ctrpipe.common.errors import InputError
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.pipeline.commands.options import PATH


@click.command()
@click.argument("source", type=PATH, metavar="RUN")
@click.option("--data", multiple=True, help="A labelled log or quoted glob; repeatable. Default: the run's test rows.")
@click.option("--group", help="The column whose values are the lists. Default: user.")
@click.option("--item", help="The column of the candidates. Default: the one that a history shares its items with.")
@click.option(
    "--k", "depths", multiple=True, type=click.IntRange(1), help="Places that count; repeatable. Default: 10."
)
@click.option("--output", type=PATH, help="Folder for ranking.json and ranking.html.")
def ranking(
    source: pathlib.Path,
    data: tuple[str, ...],
    group: str | None,
    item: str | None,
    depths: tuple[int, ...],
    output: pathlib.Path | None,
) -> None:
    """Rank lists of candidates: hit rate, NDCG, MRR, GAUC, and how much of the catalogue is shown.

    \b
      ctrpipe ranking runs/mine --k 5 --k 10        by the run's test rows
      ctrpipe ranking runs/mine/models/ctr --data test.tsv --group session
    RUN is a finished run, pushed or not, a folder of versions, or a version. Popularity stands beside the model.
    """
    load_tensorflow()
    # TensorFlow, numpy and pyarrow: 4 s that `ctrpipe --help` does without.
    from ctrpipe.pipeline.ranking.rank import rank
    from ctrpipe.pipeline.ranking.show import print_ranking, write_ranking
    from ctrpipe.pipeline.run.trained_model import find_model

    if output and output.is_file():
        raise InputError(f"--output {output}: a file; name a folder")
    found = rank(find_model(source), data, group, item, depths)
    print_ranking(found)
    if output:
        click.echo(f"Written: {', '.join(str(path) for path in write_ranking(found, output))}")
