"""The times of a schedule, in Kubeflow's form of cron."""

import re

from ctrpipe.common.errors import InputError

_FIELD = re.compile(r"[0-9A-Za-z*/,?-]+")
_SHORTCUTS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")


def read_cron(text: str) -> str:
    """Returns a cron expression as Kubeflow reads it: six fields, seconds first.

    Five fields, as in cron, get the second 0. Kubeflow would read them as seconds, minutes, hours, days and months: "0
    4 * * *", every day at four, would mean the fourth minute of every hour. Shortcuts such as @daily are unchanged.

    Raises:
        InputError: the expression has another number of fields, or an invalid field.
    """
    fields = text.split()
    if len(fields) == 1 and fields[0] in _SHORTCUTS:
        return fields[0]
    if len(fields) == 2 and fields[0] == "@every":
        return " ".join(fields)
    wrong = next((field for field in fields if not _FIELD.fullmatch(field)), None)
    if len(fields) not in (5, 6) or wrong:
        raise InputError(
            f"--recurring {text}: {f'{wrong} is no field of a cron expression' if wrong else f'{len(fields)} fields'}; "
            'give five fields, as in cron ("0 4 * * *" is every day at four), or six with the seconds first'
        )
    if len(fields) == 6:
        return " ".join(fields)
    # cron has two numbers for Sunday, Kubeflow only 0.
    weekdays = [re.sub("^7$", "0", re.sub("^([0-6])-7$", r"\1-6,0", part)) for part in fields[4].split(",")]
    return " ".join(["0", *fields[:4], ",".join(weekdays)])
