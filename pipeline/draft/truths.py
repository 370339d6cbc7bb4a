"""Words for yes and no in labels and flags."""

import itertools
import re
from collections.abc import Collection

# The positive word first, in lower case.
PAIRS = (
    *(("1", "0"), ("true", "false"), ("yes", "no"), ("y", "n"), ("t", "f"), ("click", "noclick")),
    *(("ja", "nein"), ("ja", "nej"), ("ja", "nei"), ("ja", "nee"), ("já", "nei"), ("oui", "non")),
    *(("si", "no"), ("sí", "no"), ("sì", "no"), ("sim", "não"), ("sim", "nao"), ("da", "nu"), ("da", "ne")),
    *(("tak", "nie"), ("ano", "ne"), ("áno", "nie"), ("igen", "nem"), ("kyllä", "ei"), ("jah", "ei"), ("taip", "ne")),
    *(("jā", "nē"), ("evet", "hayır"), ("evet", "hayir"), ("ya", "tidak"), ("có", "không")),
    *(("да", "нет"), ("да", "не"), ("так", "ні"), ("ναι", "όχι"), ("はい", "いいえ"), ("是", "否"), ("예", "아니오")),
    *(("نعم", "لا"), ("כן", "לא"), ("vrai", "faux"), ("wahr", "falsch"), ("verdadero", "falso"), ("vero", "falso")),
)
# What makes a word its opposite: `not bought`, `Kein Erfolg`, `non-subscriber`, `unpaid`.
_NOT = (
    "no|not|non|without|did not|kein|keine|nicht|ohne|pas|pas de|sans|sin|não|sem|niet|geen|inte|ej|ikke|ei|nie|"
    "bez|не|нет|без"
)


def negated(words: Collection[str]) -> str:
    """Returns which of two words is the opposite of the other; "" if neither is.

    Example:
        >>> negated(["Erfolg", "Kein Erfolg"]), negated(["m", "w"])
        ('Kein Erfolg', '')
    """
    for word, other in itertools.permutations(words, 2):
        if other and re.fullmatch(rf"(?:(?:{_NOT})[\s_-]*|un|in){re.escape(other)}", word, re.IGNORECASE):
            return word
    return ""
