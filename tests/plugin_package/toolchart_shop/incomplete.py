"""A row that lacks two fields."""

from __future__ import annotations

from toolchart.engine.log.stores import StoreDescriptor

DESCRIPTOR = StoreDescriptor(name="halfstore", address="halfstore://NAME", summary="half a store")
