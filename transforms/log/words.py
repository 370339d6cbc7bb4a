"""Number and missing-value notations in a log, and words for its rows in messages."""

import re

WHOLE_ROW = "all columns"  # where a finding about rows names its column
# Words for a missing number or time, unless the configuration lists other ones.
USUAL_MISSING = (
    *("NULL", "null", "Null", "NaN", "nan", "NAN", "-nan", "NA", "N/A", "n/a", "#N/A", "<NA>"),
    *("None", "none", "\\N", "-", "?"),
)
NUMBER_PATTERN = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"  # of a whole text; in re and RE2
NUMBER = re.compile(NUMBER_PATTERN, re.ASCII)
INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)  # of a whole text
