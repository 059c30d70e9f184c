"""Every command of the embedded cluster; importing this package fills the registry."""

from importlib import import_module
from pkgutil import iter_modules

from yt_exactly_once.local.commands.registry import VERSION

__all__ = ["VERSION"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
