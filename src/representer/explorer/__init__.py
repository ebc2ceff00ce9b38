"""A page on which a fitted model is explored: its map, its reasons, its kernel; served to this machine, or one file."""

from representer.explorer.explorer import Explorer
from representer.explorer.server import serve

__all__ = ["Explorer", "serve"]
