"""Prints how the source tree stands: `python tests/counts/house.py`. It holds nothing and changes nothing."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from source_tree import list_imports, load_modules


def print_counts() -> None:
    """Modules and lines by room, imports inside of functions, and private names that many modules share."""
    modules = load_modules()
    sizes: defaultdict[str, list[int]] = defaultdict(list)
    for module in modules.values():
        sizes[module.room or "."].append(len(module.path.read_text("utf-8").splitlines()))
    for room, lines in sizes.items():
        print(f"{room:10} {len(lines):4} modules {sum(lines):7} lines")
    entries = [entry for module in modules.values() for entry in list_imports(module, modules)]
    targets = Counter(entry.target for entry in entries if entry.function)
    print(f"{targets.total()} imports inside of functions, most often:")
    print(*(f"  {count:3} {target}" for target, count in targets.most_common(10)), sep="\n")
    homes: defaultdict[str, set[str]] = defaultdict(set)
    for module in modules.values():
        for function in module.iterate_functions():
            if function.name.startswith("_") and not function.name.startswith("__"):
                homes[function.name].add(module.location)
    print("private names in four modules or more:")
    shared = sorted((len(places), name) for name, places in homes.items() if len(places) >= 4)
    print(*(f"  {count:3} {name}" for count, name in reversed(shared)), sep="\n")


if __name__ == "__main__":
    print_counts()
