"""A tool with models for a process of its own: its module must be importable by name there."""

from __future__ import annotations

from pydantic import BaseModel


class Place(BaseModel):
    """A parameter of a process tool."""

    city: str
    zip: int = 0


def where(place: Place) -> Place:
    """Give the place back."""
    return Place(city=place.city.upper(), zip=place.zip + 1)
