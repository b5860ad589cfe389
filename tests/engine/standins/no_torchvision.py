"""Lets modules be imported that import torchvision and, for text alone, never use it.

The environment has none: torchvision of another build breaks the import of vLLM. vLLM's wrappers
import the image processors of transformers, whether an image will come or not.
"""

import importlib.abc
import importlib.machinery
import sys
import types


class Nothing(types.ModuleType):
    """A module that has every name; what stands behind it cannot be called."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return types.new_class(name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, told):
        self.told = told

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] != "torchvision" or (asked_for() and not self.told):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Nothing(spec.name)

    def exec_module(self, module):
        pass


def asked_for():
    """Whether `importlib.util.find_spec` is looking, and nobody imports."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "find_spec" and "importlib.util" in frame.f_code.co_filename:
            return True  # `<frozen importlib.util>`
        if frame.f_code.co_name in ("_find_and_load", "import_module"):
            return False
        frame = frame.f_back
    return False


def install(told):
    """`told`: whether who only asks if torchvision is there hears that it is."""
    sys.meta_path.append(Finder(told))
