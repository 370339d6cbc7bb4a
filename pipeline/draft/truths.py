"""Words for yes and no, as labels and flags have them."""

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
