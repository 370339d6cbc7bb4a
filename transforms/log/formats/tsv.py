"""TSV: values separated by tabs, or by `data.delimiter`, which are taken literally."""

from ctrpipe.transforms.log.formats.delimited import Delimited


class Tsv(Delimited):
    """Reads TSV."""

    quoted = False
