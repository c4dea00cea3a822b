"""Builds in a temporary folder, so that `pip install .` leaves nothing in the tree."""

from tempfile import TemporaryDirectory

from setuptools import setup

with TemporaryDirectory() as folder:
    setup(
        script_name="setup.py",  # setuptools leaves this file out of the wheel by its name
        options={"build": {"build_base": folder}, "egg_info": {"egg_base": folder}},
    )
