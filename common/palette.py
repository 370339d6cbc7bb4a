"""The colors of all pages and plots, for light and for dark mode. Separate from figures.py, which imports matplotlib.

The series' colors are Okabe and Ito's, which are safe for color-blind readers, and three more for plots of many lines.

References:
    Okabe and Ito, "Color Universal Design", 2008.
"""

# CSS variable: light, dark.
COLORS = {
    "--page": ("#ffffff", "#14181e"),
    "--panel": ("#f4f6f8", "#1d232b"),
    "--text": ("#1c2430", "#e4e8ee"),
    "--muted": ("#5b6573", "#9aa5b4"),
    "--rule": ("#d5dbe3", "#343c47"),
    "--yes": ("#0b6a4f", "#4cc9a0"),
    "--no": ("#b3401a", "#ff9a6b"),
    "--c0": ("#0072b2", "#56b4e9"),
    "--c1": ("#d55e00", "#e69f00"),
    "--c2": ("#009e73", "#5fd3b0"),
    "--c3": ("#8a6d00", "#f0d54a"),
    "--c4": ("#8a4fa3", "#d6a4e8"),
    "--c5": ("#4a5058", "#b8bec8"),
}
PAGE, TEXT, MUTED, RULE = (COLORS[name][0] for name in ("--page", "--text", "--muted", "--rule"))
SERIES = tuple(light for name, (light, _) in COLORS.items() if name.startswith("--c"))
PLUS, MINUS = SERIES[:2]  # above and below 0


def css() -> str:
    """Returns the rules that set the CSS variables, for light and for dark mode. Paper is always light."""
    light, dark = (" ".join(f"{name}: {pair[side]};" for name, pair in COLORS.items()) for side in (0, 1))
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    )


def with_variables(style: str) -> str:
    """Replaces the light colors of a CSS style by the variables, with the light color where no page sets them."""
    for name, (light, _) in COLORS.items():
        style = style.replace(light, f"var({name}, {light})")
    return style
