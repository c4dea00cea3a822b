"""Find integers that satisfy linear constraints, or prove that there are none. Exact, without bounds on size.

The method is variable elimination, as in the Omega test (Pugh, 1991), and each step of it is exact:

1. *Tightening.* `2x - 1 >= 0` is `x - 1 >= 0` for integers: a constraint is divided by the greatest common
   divisor of its factors, and its constant rounded down. An equality whose constant does not divide has no
   solution.
2. *Equalities.* A variable with factor 1 or -1 is replaced by the rest of its equality. Where no factor is
   1, the variable with the smallest factor `a` is replaced by a fresh variable minus whole multiples of
   the others. This maps integer solutions one to one and leaves factors below `a`, as Euclid's algorithm
   does, so that a factor of 1 turns up.
3. *Inequalities.* To remove `x`, each lower bound `b*x >= L` is paired with each upper bound `a*x <= U`
   (Fourier and Motzkin): `a*L <= b*U`. What has a solution still has one. The converse holds if `a` or `b` is
   1 in every pair, since then the interval for `x` has an integer end. Otherwise a solution of the pairs may
   leave room for `x`. If it does not, the cases are tried one by one: if there is any solution, then there is
   one with the smallest `x` that the lower bounds allow, and there one of them is nearly tight:
   `b*x = L + i` with `0 <= i < b`. The same goes for the greatest `x` and the upper bounds. Where two
   constraints leave a sum of variables fewer values than there are such cases, these values are tried.

4. *Ranges.* Pairing multiplies constraints. Where it would add many, the range of a variable is cut in
   two, and both halves are tried. A constraint that holds everywhere in the ranges is left out.

Each step removes a variable, or shrinks a factor or a range; each list of cases is finite. So it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd

import msgspec

MAX_ADDED_CONSTRAINTS = 12
"""Where pairing would add more constraints, the range of a variable is halved first, if one has a range."""

Terms = tuple[tuple[str, int], ...]
"""Variables with their factors, none of them zero, sorted."""

Solution = dict[str, int]


class Constraint(msgspec.Struct, frozen=True):
    """The sum of factor times variable, plus a constant, is at least zero, or exactly zero."""

    terms: Terms
    constant: int
    is_equality: bool = False

    def holds(self, solution: Mapping[str, int]) -> bool:
        """Whether it is true for these values. A variable without a value counts as 0."""
        total = self.constant
        for name, factor in self.terms:
            total += factor * solution.get(name, 0)
        return total == 0 if self.is_equality else total >= 0


def build_constraint(factors: Mapping[str, int], constant: int, *, is_equality: bool = False) -> Constraint:
    """A constraint from a mapping of variables to factors."""
    terms = tuple(sorted((name, factor) for name, factor in factors.items() if factor))
    return Constraint(terms, constant, is_equality)


class WorkLimitReached(Exception):
    """The search has used up its work without an answer."""


class WorkLimit:
    """The work that a search may still do: the constraints of all systems that it looks at."""

    def __init__(self, constraints: int) -> None:
        self._constraints_left = constraints

    def count_work(self, constraints: int) -> None:
        """Count a system of this many constraints.

        Raises:
            WorkLimitReached: that is more than is left.
        """
        self._constraints_left -= constraints
        if self._constraints_left < 0:
            raise WorkLimitReached


def find_integers(constraints: Sequence[Constraint], limit: WorkLimit) -> Solution | None:
    """Integers, near zero where there is a choice, that satisfy every constraint; None where there are none.

    Raises:
        WorkLimitReached: the limit was reached first.
    """
    limit.count_work(len(constraints))
    system = _tighten(constraints)
    if system is None:
        return None
    for index, constraint in enumerate(system):
        if constraint.is_equality:
            return _solve_by_equality(constraint, system[:index] + system[index + 1 :], limit)
    return _solve_by_pairing(system, limit) if system else {}


def _tighten(constraints: Iterable[Constraint]) -> list[Constraint] | None:
    """The same system without needless constraints, equalities first; None where it has no solution."""
    equalities: dict[Constraint, None] = {}
    constants: dict[Terms, int] = {}
    for constraint in constraints:
        terms, constant = constraint.terms, constraint.constant
        if not terms:
            if constant < 0 or (constraint.is_equality and constant):
                return None
            continue
        divisor = gcd(*(factor for _, factor in terms))
        if divisor > 1:
            terms = tuple((name, factor // divisor) for name, factor in terms)
        if not constraint.is_equality:
            # Rounded down, because the sum is a whole number: `2x - 1 >= 0` says `x - 1 >= 0`.
            constant //= divisor
            constants[terms] = min(constant, constants.get(terms, constant))
        elif constant % divisor:
            return None
        else:
            equalities[Constraint(terms, constant // divisor, True)] = None
    inequalities = []
    for terms, constant in constants.items():
        room = constant + constants.get(tuple((name, -factor) for name, factor in terms), 1 - constant)
        if room < 0:
            return None
        if room == 0:
            is_leading = terms[0][1] > 0  # the opposite constraint says the same
            equalities.update({Constraint(terms, constant, True): None} if is_leading else {})
        else:
            inequalities.append(Constraint(terms, constant))
    needed_inequalities = _drop_implied(inequalities)
    return None if needed_inequalities is None else [*equalities, *needed_inequalities]


def _drop_implied(inequalities: list[Constraint]) -> list[Constraint] | None:
    """Those that do not follow from the ranges of their variables; None where one contradicts them."""
    least, greatest = _find_ranges(inequalities)
    needed_inequalities = []
    for constraint in inequalities:
        if len(constraint.terms) > 1:
            total = _add_ends(constraint, greatest, least)
            if total is not None and total < 0:
                return None
            total = _add_ends(constraint, least, greatest)
            if total is not None and total >= 0:
                continue
        needed_inequalities.append(constraint)
    return needed_inequalities


def _find_ranges(inequalities: list[Constraint]) -> tuple[dict[str, int], dict[str, int]]:
    """The least and the greatest values that constraints with one variable allow."""
    least: dict[str, int] = {}
    greatest: dict[str, int] = {}
    for constraint in inequalities:
        if len(constraint.terms) == 1:
            name, factor = constraint.terms[0]  # the factor is 1 or -1 after tightening
            if factor > 0:
                least[name] = -constraint.constant
            else:
                greatest[name] = constraint.constant
    return least, greatest


def _add_ends(
    constraint: Constraint, ends: Mapping[str, int], opposite_ends: Mapping[str, int]
) -> int | None:
    """The sum of a constraint with each variable at one end of its range; None where one has no such end."""
    total = constraint.constant
    for name, factor in constraint.terms:
        end = (ends if factor > 0 else opposite_ends).get(name)
        if end is None:
            return None
        total += factor * end
    return total


# -- equalities ----------------------------------------------------------------------------------


def _solve_by_equality(equality: Constraint, others: list[Constraint], limit: WorkLimit) -> Solution | None:
    """Replace the variable with the smallest factor in an equality, and solve the rest."""
    name, divisor = min(equality.terms, key=lambda term: abs(term[1]))
    factors = {other: -(factor // divisor) for other, factor in equality.terms if other != name}
    constant = -(equality.constant // divisor)
    # Where no factor is 1, a fresh variable leaves factors below this one, as in Euclid's algorithm, so that
    # a 1 turns up in the end. The equality itself goes on with it.
    if abs(divisor) > 1:
        factors[f"{name}'"] = 1
        others = [equality, *others]
    solution = find_integers([_replace(other, name, factors, constant) for other in others], limit)
    if solution is not None:
        solution[name] = _evaluate_sum(factors.items(), constant, solution)
    return solution


def _replace(constraint: Constraint, name: str, factors: Mapping[str, int], constant: int) -> Constraint:
    """The constraint with a variable replaced by a sum."""
    remaining = dict(constraint.terms)
    factor = remaining.pop(name, 0)
    if not factor:
        return constraint
    for other, value in factors.items():
        remaining[other] = remaining.get(other, 0) + factor * value
    return build_constraint(
        remaining, constraint.constant + factor * constant, is_equality=constraint.is_equality
    )


def _evaluate_sum(terms: Iterable[tuple[str, int]], constant: int, solution: Solution) -> int:
    """The value of a sum. A variable that nothing limits becomes 0 in the solution."""
    return constant + sum(factor * solution.setdefault(name, 0) for name, factor in terms)


# -- inequalities --------------------------------------------------------------------------------


class _Bounds:
    """The constraints that bound one variable from below and from above, each with its factor's size."""

    def __init__(self) -> None:
        self.lower: list[tuple[int, Constraint]] = []
        self.upper: list[tuple[int, Constraint]] = []

    @property
    def is_exact(self) -> bool:
        """Whether every pair has a factor of 1."""
        return all(size == 1 for size, _ in self.lower) or all(size == 1 for size, _ in self.upper)

    @property
    def cost(self) -> tuple[bool, int]:
        """What should be removed first is least: exact ones, then those that add the fewest constraints."""
        return not self.is_exact, len(self.lower) * len(self.upper) - len(self.lower) - len(self.upper)


def _solve_by_pairing(system: list[Constraint], limit: WorkLimit) -> Solution | None:
    """Remove the cheapest variable from a system of inequalities, and solve the rest."""
    name, bounds = _choose_variable(system)
    if bounds.cost[1] > MAX_ADDED_CONSTRAINTS:
        halves = _halve_range(system)
        if halves is not None:
            return _solve_first(([half, *system] for half in halves), limit)
    limit.count_work(len(bounds.lower) * len(bounds.upper))
    paired_constraints = [
        _pair_bounds(lower, upper, name) for lower in bounds.lower for upper in bounds.upper
    ]
    others = [constraint for constraint in system if all(other != name for other, _ in constraint.terms)]
    solution = find_integers([*others, *paired_constraints], limit)
    # The pairs follow from the system: where they have no solution, it has none.
    if solution is None:
        return None
    value = _choose_value(name, bounds, solution)
    if value is not None:
        solution[name] = value
        return solution
    # A fraction lies between the bounds, and no integer, for this solution of the others; another one may
    # leave room.
    return _try_cases(bounds, system, limit)


def _solve_first(systems: Iterable[list[Constraint]], limit: WorkLimit) -> Solution | None:
    """A solution of the first system that has one."""
    solutions = (find_integers(system, limit) for system in systems)
    return next((solution for solution in solutions if solution is not None), None)


def _halve_range(system: list[Constraint]) -> tuple[Constraint, Constraint] | None:
    """The lower and the upper half of the smallest range of a variable; None where no range can be halved."""
    least, greatest = _find_ranges(system)
    widths = {name: greatest[name] - least[name] for name in least.keys() & greatest.keys()}
    wide = {name: width for name, width in sorted(widths.items()) if width > 0}
    if not wide:
        return None
    name = min(wide, key=wide.__getitem__)
    middle = (least[name] + greatest[name]) // 2
    return Constraint(((name, -1),), middle), Constraint(((name, 1),), -middle - 1)


def _choose_variable(system: list[Constraint]) -> tuple[str, _Bounds]:
    bounds_by_name: dict[str, _Bounds] = {}
    for constraint in system:
        for name, factor in constraint.terms:
            bounds = bounds_by_name.setdefault(name, _Bounds())
            (bounds.lower if factor > 0 else bounds.upper).append((abs(factor), constraint))
    return min(bounds_by_name.items(), key=lambda item: item[1].cost)


def _pair_bounds(lower: tuple[int, Constraint], upper: tuple[int, Constraint], name: str) -> Constraint:
    """What a lower and an upper bound of a variable say together, without it."""
    factors: dict[str, int] = {}
    for other, factor in lower[1].terms:
        factors[other] = factor * upper[0]
    for other, factor in upper[1].terms:
        factors[other] = factors.get(other, 0) + factor * lower[0]
    assert factors[name] == 0, "the factors have opposite signs"
    return build_constraint(factors, lower[1].constant * upper[0] + upper[1].constant * lower[0])


def _choose_value(name: str, bounds: _Bounds, solution: Solution) -> int | None:
    """The value nearest to zero between the bounds; None where no integer lies between them."""

    def evaluate_rest(constraint: Constraint) -> int:
        terms = ((other, factor) for other, factor in constraint.terms if other != name)
        return _evaluate_sum(terms, constraint.constant, solution)

    least = max((-(evaluate_rest(constraint) // size) for size, constraint in bounds.lower), default=None)
    greatest = min((evaluate_rest(constraint) // size for size, constraint in bounds.upper), default=None)
    if least is not None and greatest is not None and least > greatest:
        return None
    value = 0 if least is None else max(0, least)
    return value if greatest is None else min(value, greatest)


def _try_cases(bounds: _Bounds, system: list[Constraint], limit: WorkLimit) -> Solution | None:
    """Solve the system with one bound of a variable nearly tight, for each bound of its cheaper side."""
    side = min(bounds.lower, bounds.upper, key=lambda bounds: sum(size for size, _ in bounds))
    room, narrowest = _find_narrowest_sum(system)
    if narrowest is not None and room < sum(size for size, _ in side):
        side = [(room + 1, narrowest)]
    cases = (
        [Constraint(constraint.terms, constraint.constant - excess, True), *system]
        for size, constraint in side
        for excess in range(size)
    )
    return _solve_first(cases, limit)


def _find_narrowest_sum(system: list[Constraint]) -> tuple[int, Constraint | None]:
    """The constraint that another one bounds most closely from above; first by how much it may exceed 0."""
    constants = {constraint.terms: constraint.constant for constraint in system}
    narrowest, least_room = None, 0
    for constraint in system:
        opposite = constants.get(tuple((name, -factor) for name, factor in constraint.terms))
        if opposite is None:
            continue
        room = constraint.constant + opposite
        if narrowest is None or room < least_room:
            narrowest, least_room = constraint, room
    return least_room, narrowest
