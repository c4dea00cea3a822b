"""A tool with pydantic models that runs in a separate process, so its module must be importable by name."""

from __future__ import annotations

from pydantic import BaseModel


class Place(BaseModel):
    """A parameter of a process tool."""

    city: str
    zip: int = 0


def where(place: Place) -> Place:
    """The same place with the city in upper case and the next zip code."""
    return Place(city=place.city.upper(), zip=place.zip + 1)
