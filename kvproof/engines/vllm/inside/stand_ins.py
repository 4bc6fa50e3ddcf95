"""The few small things that the modules under test need to work, in place of what is left out.

Each stands for one name of the engine or of torch, does the same for the values that programs
here use, and refuses the others.  ``loading`` puts them in place.  Standard library only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any


class StandInCalled(RuntimeError):  # noqa: N818 - a public name that says what happened
    """A program needed the value of something that focused loading left out."""

    def __init__(self, name: str, use: str = "called") -> None:
        super().__init__(f"focused loading: stand-in {name} was {use}")
        self.name = name


class ReadOnlyList(Sequence[Any]):
    """The view of a token list that a request hands out: reads follow, writes are refused."""

    def __init__(self, x: list[Any]) -> None:
        self._tokens = x

    def __getitem__(self, item: Any) -> Any:
        return self._tokens[item]

    def __len__(self) -> int:
        return len(self._tokens)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._tokens)

    def __contains__(self, item: object) -> bool:
        return item in self._tokens

    def copy(self) -> list[Any]:
        return list(self._tokens)

    def _refuse(self, *_: object) -> None:
        raise TypeError("this list is read-only")

    append = extend = insert = pop = remove = clear = __setitem__ = __delitem__ = _refuse


@dataclass(frozen=True, slots=True)
class Dtype:
    """In place of ``torch.dtype``: cache specifications need its name and its size in bytes."""

    name: str
    itemsize: int


class Logger(logging.LoggerAdapter[logging.Logger]):
    """A logger with the engine's extra ``*_once`` methods, which here say it every time."""

    def debug_once(self, message: str, *args: object, **_: object) -> None:
        self.debug(message, *args)

    def info_once(self, message: str, *args: object, **_: object) -> None:
        self.info(message, *args)

    def warning_once(self, message: str, *args: object, **_: object) -> None:
        self.warning(message, *args)


def init_logger(name: str) -> Logger:
    logger = logging.getLogger(name)
    logger.setLevel(os.environ.get("VLLM_LOGGING_LEVEL", "ERROR"))
    return Logger(logger, {})


def dtype_size(dtype: Dtype) -> int:
    return dtype.itemsize


def prompt_length(tokens: Sequence[int] | None, embeds: object) -> int:
    """Tokens in a prompt; prompts given as embeddings are tensors, which are left out here."""
    if tokens is None or embeds is not None:
        raise StandInCalled("torch.Tensor (a prompt given as embeddings)", "used")
    return len(tokens)


def no_structured_output(params: Any) -> None:
    if params is not None and getattr(params, "structured_outputs", None):
        raise StandInCalled("vllm.v1.structured_output.request.StructuredOutputRequest")


def no_features(features: Sequence[object], start: int, end: int) -> tuple[int, int]:
    """The range of multimodal inputs between two tokens, for a request that has none."""
    if features:
        raise StandInCalled("vllm.multimodal.utils.get_mm_features_in_window")
    return 0, 0


def nothing(*_: object) -> None:
    """No configuration is current outside an engine, and no other platform has a hook here."""


def no_multimodal_data(features: Sequence[object], *_: object, **__: object) -> Sequence[object]:
    """A request's multimodal inputs, of which there are none, as they go to the workers."""
    if features:
        raise StandInCalled("vllm.multimodal.utils.strip_covered_mm_data")
    return features


def no_scope(_: str) -> contextlib.AbstractContextManager[None]:
    """No profiler records how long a scope takes."""
    return contextlib.nullcontext()


def never() -> bool:
    """No special platform is under the engine."""
    return False


DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "uint8": 1, "int8": 1}
# The few things that the modules under test need to work, by their full names.
REAL_STAND_INS: dict[str, object] = {
    "vllm.config.utils.config": dataclasses.dataclass,  # the engine's own adds validation only
    "vllm.config.get_current_vllm_config_or_none": nothing,
    "vllm.logger.init_logger": init_logger,
    "vllm.multimodal.utils.get_mm_features_in_window": no_features,
    "vllm.multimodal.utils.strip_covered_mm_data": no_multimodal_data,
    "vllm.platforms.current_platform.is_xpu": never,
    "vllm.platforms.current_platform.register_custom_kv_cache_specs": nothing,
    "vllm.utils.length_from_prompt_token_ids_or_embeds": prompt_length,
    "vllm.utils.torch_utils.get_dtype_size": dtype_size,
    "vllm.v1.structured_output.request.StructuredOutputRequest.from_sampling_params": (
        no_structured_output
    ),
    "vllm.v1.utils.ConstantList": ReadOnlyList,
    "vllm.v1.utils.record_function_or_nullcontext": no_scope,
    "torch.dtype": Dtype,
    **{f"torch.{name}": Dtype(f"torch.{name}", size) for name, size in DTYPE_BYTES.items()},
}
