"""Load vLLM's block allocator, and nothing else, inside the engine's interpreter.

``install(source)`` puts two finders around Python's own import system.  The modules under test
are then executed for real from ``source``; their parent packages are empty; every other module
(torch, vllm.config, multimodal, ...) is an inert stand-in.  The modules under test are pure
Python, so this changes nothing that they do, and it needs no torch and a tenth of a second.

A stand-in may be named: imported, used as an annotation or a default, subclassed, asked for in
``isinstance`` (never true).  Anything that would need its *value* while a program runs (a call,
an iteration, a comparison, a truth test) raises ``StandInCalled`` with its name, because an
answer made up here would be taken for the engine's.  Only while a module is being loaded do
such uses give another stand-in: decorators and platform tests run then, and what they produce
raises in its turn when a program uses it.

Standard library only: the engine's interpreter has no other package of ours.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import typing
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from kvproof.engines.vllm.inside.sources import SourceFinder, SourceLoader
from kvproof.engines.vllm.inside.stand_ins import REAL_STAND_INS, StandInCalled

# What is loaded for real, when ``source`` has it.  A trailing dot means everything below.
REAL_MODULES = (
    "vllm.v1.core.",
    "vllm.v1.hisparse.",
    "vllm.v1.kv_cache_interface",
    "vllm.v1.kv_cache_layout",
    "vllm.v1.kv_cache_spec_registry",
    "vllm.v1.request",
    "vllm.v1.engine",
    "vllm.v1.metrics.stats",
    "vllm.v1.metrics.cache_hit_source",
    "vllm.distributed.kv_events",
    "vllm.utils.math_utils",
    "vllm.utils.hashing",
    "vllm.utils.collection_utils",
    "vllm.envs",
)
# What the whole scheduler needs beside them.  Only a program at that level imports these.
SCHEDULER_MODULES = (
    "vllm.config.kv_transfer",
    "vllm.distributed.kv_transfer.kv_connector.base",
    "vllm.distributed.kv_transfer.kv_connector.factory",
    "vllm.distributed.kv_transfer.kv_connector.v1",
    "vllm.distributed.kv_transfer.kv_connector.v1.base",
    "vllm.distributed.kv_transfer.kv_connector.v1.hisparse.connector",
    "vllm.distributed.kv_transfer.kv_connector.v1.hisparse.stats",
    "vllm.distributed.kv_transfer.kv_connector.v1.metrics",
    "vllm.distributed.kv_transfer.kv_connector.v1.multi_connector",
    "vllm.utils.func_utils",
    "vllm.v1.outputs",
)
# Below a real prefix, but made of GPU code: only its names are wanted.
NEVER_REAL = ("vllm.v1.hisparse.runtime", "vllm.v1.hisparse.binding")
# GPU code that the scheduler's modules import and never use: left out in full loading, too.
GPU_MODULES = (
    "vllm.distributed.kv_transfer.kv_connector.v1.hisparse.worker",
    "vllm.model_executor.layers.fused_moe.routed_experts_capturer",
    "vllm.model_executor.layers.fused_moe",
)
# Never taken from the interpreter's own packages, so that both kinds of environment agree.
STAND_IN_ROOTS = ("vllm", "torch")
# The engine itself can do without these, and does so in the full environment too.
OPTIONAL_PACKAGES = ("xxhash",)


@dataclass(slots=True)
class _Loading:
    """How many modules are being executed right now; 0 means that a program runs."""

    depth: int = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1


_LOADING = _Loading()


class StandIn:
    """One name of a module that was left out.  It knows its full name and nothing else."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = name.rpartition(".")[0]

    def __getattr__(self, attribute: str) -> object:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        value = _stand_in(f"{self.__name__}.{attribute}")
        self.__dict__[attribute] = value  # one name is one object, so that `is` holds
        return value

    def __repr__(self) -> str:
        return f"<stand-in {self.__name__}>"

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (type(self.__name__, (_StandInBase,), {"_stand_in": self}),)

    def __instancecheck__(self, instance: object) -> bool:
        return False

    def __subclasscheck__(self, subclass: type) -> bool:
        return any(vars(base).get("_stand_in") is self for base in subclass.__mro__)

    def __or__(self, other: Any) -> Any:
        with _LOADING:  # typing compares the parts with each other
            return typing.Union[self, other]  # noqa: UP007 - `|` is what is defined here

    def __ror__(self, other: Any) -> Any:
        with _LOADING:
            return typing.Union[other, self]  # noqa: UP007

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other or bool(_use(self, "compared"))

    def __bool__(self) -> bool:
        _use(self, "tested for truth")
        return False  # at import: "is there such a GPU, such a package?"

    def __str__(self) -> str:
        _use(self, "written out")
        return repr(self)

    def __format__(self, _: str) -> str:
        return str(self)

    def __copy__(self) -> StandIn:
        return self

    def __deepcopy__(self, memo: object) -> StandIn:
        return self


class _StandInBase:
    """What a class of the engine inherits in place of a base class that was left out."""

    _stand_in: StandIn

    def __init_subclass__(cls, **_: object) -> None:
        """Accept any class keyword, as the real base might."""

    def __new__(cls, *_: object, **__: object) -> Any:
        _use(cls._stand_in, f"instantiated through {cls.__name__}")
        return super().__new__(cls)


def _use(stand_in: StandIn, use: str) -> StandIn:
    """The result of using a value that is not there: an error, except while modules load."""
    if not _LOADING.depth:
        raise StandInCalled(stand_in.__name__, use)
    return StandIn(f"{stand_in.__name__} ({use} at import)")


def _operation(use: str) -> Any:
    return lambda self, *_, **__: _use(self, use)


for _use_word, _methods in {
    "called": "call enter exit await",
    "iterated": "iter next len contains reversed",
    "indexed": "getitem setitem delitem",
    "compared": "ne lt le gt ge",
    "pickled": "reduce_ex",
    "computed with": "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow"
    " rpow and rand neg abs int float index matmul lshift rshift",
}.items():
    for _method in _methods.split():
        setattr(StandIn, f"__{_method}__", _operation(_use_word))


def _stand_in(name: str) -> object:
    return REAL_STAND_INS[name] if name in REAL_STAND_INS else StandIn(name)


class _StandInModule(ModuleType):
    """An empty package; whatever is asked of it is a real submodule or a stand-in."""

    def __getattr__(self, attribute: str) -> object:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        name = f"{self.__name__}.{attribute}"
        spec = importlib.util.find_spec(name) if self.__name__.startswith("vllm") else None
        is_real = spec is not None and isinstance(spec.loader, _RealLoader)
        value = importlib.import_module(name) if is_real else _stand_in(name)
        setattr(self, attribute, value)
        return value


class _StandInLoader(importlib.abc.Loader):
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _StandInModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to execute."""


class _RealLoader(SourceLoader):
    def exec_module(self, module: ModuleType) -> None:
        with _LOADING:
            super().exec_module(module)


def _is_under_test(name: str) -> bool:
    below = tuple(real for real in REAL_MODULES if real.endswith("."))
    named = name in REAL_MODULES or name in SCHEDULER_MODULES
    return (named or name.startswith(below)) and name not in NEVER_REAL


class _EngineFinder(importlib.abc.MetaPathFinder):
    """Decides about every module of the engine and of torch, before any other finder."""

    def __init__(self, sources: SourceFinder) -> None:
        self._sources = sources

    def find_spec(
        self, fullname: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in STAND_IN_ROOTS:
            return None
        real = self._sources.spec(fullname, _RealLoader) if _is_under_test(fullname) else None
        return real or importlib.machinery.ModuleSpec(fullname, _StandInLoader(), is_package=True)


class _MissingPackageFinder(importlib.abc.MetaPathFinder):
    """A package that the engine imports and nobody has: the last resort, for the engine only.

    Other libraries probe for optional packages and must go on seeing that they are missing.
    """

    def find_spec(
        self, fullname: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] in OPTIONAL_PACKAGES or not _engine_is_importing():
            return None
        return importlib.machinery.ModuleSpec(fullname, _StandInLoader(), is_package=True)


def _engine_is_importing() -> bool:
    frame = sys._getframe(2)
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith(
        ("importlib", "_frozen_importlib")
    ):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")).startswith("vllm.")


def install(source: Path) -> None:
    """Make ``import vllm...`` load the modules under test from ``source``, a folder with ``vllm/``.

    Call it once, before anything of vLLM is imported.  Raises ``FileNotFoundError`` when
    ``source`` holds no vLLM, ``RuntimeError`` when it comes too late.
    """
    if not (source / "vllm" / "v1" / "core" / "kv_cache_manager.py").is_file():
        raise FileNotFoundError(f"{source} holds no vllm/v1/core/kv_cache_manager.py")
    if loaded := [root for root in STAND_IN_ROOTS if root in sys.modules]:
        raise RuntimeError(f"focused loading comes too late: {loaded[0]} is already imported")
    sys.meta_path.insert(0, _EngineFinder(SourceFinder(source)))
    sys.meta_path.append(_MissingPackageFinder())


def leave_out_gpu_code() -> None:
    """For full loading of the scheduler: stand-ins for the modules that need a GPU's libraries.

    Call it before these are imported, with the engine's sources on the path.
    """
    for name in GPU_MODULES:
        spec = importlib.machinery.ModuleSpec(name, _StandInLoader(), is_package=True)
        sys.modules[name] = importlib.util.module_from_spec(spec)
