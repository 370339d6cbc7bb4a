"""TSV: values separated by tabs or by `data.delimiter`, without quoting."""

from ctrpipe.transforms.log.formats.delimited import Delimited


class Tsv(Delimited):
    """Reads TSV."""

    quoted = False
