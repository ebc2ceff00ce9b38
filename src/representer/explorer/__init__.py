"""A page on which a fitted model is explored by its map, its reasons and its kernel, served or in one file."""

from representer.explorer.explorer import Explorer
from representer.explorer.server import serve

__all__ = ["Explorer", "serve"]
