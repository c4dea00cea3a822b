"""Random expressions of ten families for the calculator; the same seed gives the same ones."""

from __future__ import annotations

from random import Random

FAMILIES = (
    *("integers", "fractions", "powers", "roots", "logarithms", "angles"),
    *("exponentials", "rounding", "counting", "mixed"),
)

_LEAVES = {
    "integers": ("7", "12", "-3", "999", "1e300", "10**20"),
    "fractions": ("1/3", "0.1", "2.5", "7/9", "1e-9", "22/7"),
    "powers": ("2**50", "3**9000", "10**300", "7**-20", "2**0.5", "(1/3)**99"),
    "roots": ("sqrt(2)", "cbrt(7)", "sqrt(3**99)", "cbrt(3**900+7)", "sqrt(-4)", "sqrt(sqrt(5)+1)"),
    "logarithms": ("ln(10)", "log(8, 2)", "log10(7)", "log2(3**99)", "ln(1e300)", "log(pi)"),
    "angles": ("sin(1)", "cos(pi/7)", "tan(1e15)", "asin(0.3)", "atan(9)", "acos(2)"),
    "exponentials": ("exp(1)", "exp(9999)", "sinh(3)", "cosh(20)", "tanh(0.5)", "exp(-9000)"),
    "rounding": ("round(2.5)", "floor(pi)", "ceil(exp(30))", "round(e, 9)", "floor(1e15/7)", "abs(-pi)"),
    "counting": ("factorial(2000)", "binomial(900, 450)", "gcd(12, 18)", "lcm(7, 9)", "factorial(20)", "3"),
}
_SIGNS = ("+", "-", "*", "/", "//", "%", "**")


def build_expression(family: str, random: Random) -> str:
    """A random expression of one family."""
    names = list(_LEAVES) if family == "mixed" else [family]
    return _build_node([leaf for name in names for leaf in _LEAVES[name]], random, random.randint(1, 4))


def _build_node(leaves: list[str], random: Random, depth: int) -> str:
    if depth == 0 or random.random() < 0.2:
        return random.choice(leaves)
    if random.random() < 0.2:
        name = random.choice(("sqrt", "abs", "floor", "ln", "sin", "exp", "cbrt", "round"))
        return f"{name}({_build_node(leaves, random, depth - 1)})"
    left, right = _build_node(leaves, random, depth - 1), _build_node(leaves, random, depth - 1)
    return f"({left} {random.choice(_SIGNS)} {right})"
