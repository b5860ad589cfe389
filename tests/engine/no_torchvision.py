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
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torchvision":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Nothing(spec.name)

    def exec_module(self, module):
        pass


def install():
    sys.meta_path.append(Finder())
