"""Lets SGLang start on a machine without a GPU and without compiled kernels; changes no file of any package.

Every Python process of the server loads this module, since PYTHONPATH names its folder. It knows nothing of the
project: it runs in SGLang's own virtual environment.

sgl_kernel     compiled for CUDA: importable names that raise when they are called
triton         for GPUs only, 690 MB: importable names; decorators give the plain function back
torchvision    its binary part does not load beside a CPU-only torch: its missing operators are declared, never run
pinned memory  needs an accelerator: plain memory instead
"""

import functools
import importlib.machinery
import sys
import types

PLAIN = ("tensor", "empty", "zeros", "ones", "full", "arange", "rand", "randn", "randint")
LIKE = ("empty_like", "zeros_like", "ones_like", "full_like", "empty_strided")
STAND_INS = {}
"""Each package that a stand-in serves, with the class of the stand-in."""


class Absent:
    """A name that can be imported and has attributes, and raises when it is called."""

    def __init__(self, name):
        self.__name__ = self.__qualname__ = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")

    def __call__(self, *args, **kwargs):
        raise RuntimeError(f"{self.__name__} is not built on this machine")


class Anything:
    """The base of each class that a stand-in hands out."""

    def __init__(self, *args, **kwargs):
        pass


class StandIn(types.ModuleType):
    """A module that has every name."""

    def __init__(self, name):
        super().__init__(name)
        self.__path__ = []
        self.__spec__ = importlib.machinery.ModuleSpec(name, FINDER, is_package=True)


class Kernels(StandIn):
    """Stands in for sgl_kernel."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")


class Triton(StandIn):
    """Stands in for triton: kernels can be defined; running one (kernel[grid](...)) is a TypeError."""

    __version__ = "3.7.1"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name[0].isupper():
            value = type(name, (Anything,), {})
        else:
            full = f"{self.__name__}.{name}"
            value = sys.modules.setdefault(full, Triton(full))
        setattr(self, name, value)
        return value

    def __call__(self, *args, **kwargs):
        if len(args) == 1 and not kwargs and isinstance(args[0], types.FunctionType):
            return args[0]
        return lambda target: target

    @staticmethod
    def cdiv(a, b):
        return -(-a // b)

    @staticmethod
    def next_power_of_2(n):
        return 1 << max(n - 1, 0).bit_length()


class Finder:
    """Serves the stand-ins; asked last, so that an installed package wins."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in STAND_INS:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return STAND_INS[spec.name.partition(".")[0]](spec.name)

    def exec_module(self, module):
        pass


class Before:
    """Runs a hook just before a real package is imported for the first time; asked first, finds nothing."""

    def __init__(self, **hooks):
        self.hooks = hooks

    def find_spec(self, name, path=None, target=None):
        hook = self.hooks.pop(name, None)
        if hook is not None:
            hook()


def declare_torchvision_operators():
    import torch

    if torch.version.cuda:  # then torchvision's own binary part fits, and brings them
        return
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    torch._kept_torchvision_library = library  # the declarations live as long as this does


def use_plain_memory():
    import torch

    def plain(make):
        @functools.wraps(make)
        def call(*args, **kwargs):
            kwargs.pop("pin_memory", None)
            return make(*args, **kwargs)

        return call

    for name in (*PLAIN, *LIKE):
        setattr(torch, name, plain(getattr(torch, name)))
    torch.Tensor.pin_memory = lambda self, *args, **kwargs: self
    torch.Tensor.is_pinned = lambda self, *args, **kwargs: False


FINDER = Finder()
STAND_INS.update(sgl_kernel=Kernels, triton=Triton)
sys.meta_path.append(FINDER)
sys.meta_path.insert(0, Before(torchvision=declare_torchvision_operators, sglang=use_plain_memory))
