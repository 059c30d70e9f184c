"""The methods of the service; importing this package registers them."""

from importlib import import_module
from pkgutil import iter_modules

from yt_exactly_once.local.rpc.calls import METHODS

__all__ = ["METHODS"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
