"""Exits with an error where an sdist or a wheel lacks something, or has what nobody should get.

python .ci/check_distributions.py FOLDER VERSION
"""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

folder, version = Path(sys.argv[1]), sys.argv[2]
root = Path(__file__).resolve().parents[1]
listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True).stdout
tracked = {name for name in listed.decode().split("\0") if name}
rooms = {"states", "specs", "engine", "app", "providers", "tools", "workers", "testing"}
shipped = {
    name
    for name in tracked
    if name.split("/")[0] in rooms or ("/" not in name and name.endswith((".py", ".typed")))
} - {"setup.py"}

wheel = set(zipfile.ZipFile(folder / f"toolchart-{version}-py3-none-any.whl").namelist())
with tarfile.open(folder / f"toolchart-{version}.tar.gz") as archive:
    sdist = {str(PurePosixPath(*PurePosixPath(name).parts[1:])) for name in archive.getnames()}

wrong = [f"the wheel lacks {name}" for name in sorted(shipped) if f"toolchart/{name}" not in wheel]
wrong += [f"the sdist lacks {name}" for name in sorted({*shipped, "setup.py"}) if name not in sdist]
wrong += [
    f"the sdist lacks {name}" for name in ("LICENSE", "README.md", "pyproject.toml") if name not in sdist
]
wrong += [
    f"the wheel has {name}"
    for name in sorted(wheel)
    if not name.startswith((f"toolchart-{version}.d", "toolchart/"))
    or (name.startswith("toolchart/") and name.removeprefix("toolchart/") not in shipped)
]
if wrong:
    sys.exit("\n".join(wrong))
print(f"{len(wheel)} files in the wheel, {len(sdist)} in the sdist")
