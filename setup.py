"""Builds in a temporary folder, so that `pip install .` leaves nothing in the tree."""

from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import setup
from setuptools.command.editable_wheel import editable_wheel


class EditableWheel(editable_wheel):
    """Points an editable installation at `.typing`, where `toolchart` is a folder by this name.

    Otherwise an import hook finds the package in the root of the tree. Type checkers run no hooks.
    """

    def finalize_options(self) -> None:
        """Take the packages from there, where the checkout has its links."""
        if Path(".typing/toolchart/states").is_dir():
            self.distribution.package_dir = {"": ".typing"}
        super().finalize_options()


with TemporaryDirectory() as folder:
    setup(
        script_name="setup.py",  # setuptools leaves this file out of the wheel by its name
        cmdclass={"editable_wheel": EditableWheel},
        options={"build": {"build_base": folder}, "egg_info": {"egg_base": folder}},
    )
