"""safetensors without copies: arrays of numpy, torch or jax out to a stream, bytes in to numpy.

numpy has no bfloat16. A tensor of it is a `BFloat16`: an array of the 16 bits of each number, which
`widen` makes float32 of. Nothing else is needed to load, change and publish such weights.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import Invalid

Array = npt.NDArray[Any]

_NAMES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2",
    "I8": "|i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
_OF_DTYPE = {np.dtype(text): name for name, text in _NAMES.items() if name != "BF16"}
#: The format's own bound on a header.
HEADER_BYTES_MAX = 100_000_000
_CHUNK = 1 << 20


class BFloat16(np.ndarray[Any, np.dtype[np.uint16]]):
    """An array of uint16 that holds the bits of bfloat16 numbers.

    Two may be compared for equality of their bits. Arithmetic is refused, since numpy would do it on the
    bits: `widen` before, `narrow` after. `numpy.asarray` has the bits.
    """

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if ufunc not in (np.equal, np.not_equal) or any(np.asarray(i).dtype != np.uint16 for i in inputs):
            raise Invalid(_ON_BITS.format(ufunc.__name__))
        return getattr(ufunc, method)(*map(np.asarray, inputs), **options)

    def astype(self, dtype: Any, *args: Any, **options: Any) -> Any:
        if np.dtype(dtype) != np.uint16:
            raise Invalid(_ON_BITS.format(f"astype {np.dtype(dtype)}"))
        return np.asarray(self).astype(dtype, *args, **options)


_ON_BITS = "{} of a BFloat16 would take its bits for numbers: use headway.widen before, headway.narrow after"


def bfloat16(bits: Array) -> BFloat16:
    """Say of an array of uint16 that it holds bfloat16."""
    if bits.dtype != np.uint16:
        raise Invalid(f"the bits of bfloat16 are uint16, not {bits.dtype}")
    return bits.view(BFloat16)


def widen(array: Array) -> Array:
    """float32 of a BFloat16, exactly; any other array as it is."""
    if not isinstance(array, BFloat16):
        return array
    bits = np.asarray(array)  # flat, since numpy 1 widens the type of one number
    return (bits.reshape(-1).astype(np.uint32) << 16).view(np.float32).reshape(bits.shape)


def narrow(array: Array) -> BFloat16:
    """The nearest bfloat16 of each number, ties to even; NaN stays NaN. A BFloat16 as it is."""
    if isinstance(array, BFloat16):
        return array
    wide = np.asarray(array, dtype=np.float32, order="C")
    bits = wide.reshape(-1).view(np.uint32)  # flat, since numpy 1 widens the type of one number
    rounded = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    found = np.where(nan, (bits >> 16).astype(np.uint16) | 0x40, rounded).astype(np.uint16)
    return found.reshape(wide.shape).view(BFloat16)


def to_numpy(name: str, value: Any) -> Array:
    """The array of a numpy, torch or jax tensor, contiguous, in host memory; shared where it can be."""
    if isinstance(value, np.ndarray):
        array: Array = value
    elif type(value).__module__.partition(".")[0] == "torch":
        from .torch import to_numpy as from_torch

        try:
            array = from_torch(value)
        except Exception as error:  # sparse, meta, float8 and others
            said = error.message if isinstance(error, Invalid) else error
            raise Invalid(f"tensor {name!r} cannot be published: {said}") from error
    elif hasattr(value, "__array__"):
        try:
            array = np.asarray(value)
        except Exception as error:
            raise Invalid(f"tensor {name!r} is a {type(value).__name__} of which there is no array: {error}") from error
    else:
        raise Invalid(f"tensor {name!r} is a {type(value).__name__}: want a numpy, torch or jax array")
    if array.dtype.name == "bfloat16":  # ml_dtypes, which jax brings
        array = np.asarray(array, order="C").view(np.uint16).view(BFloat16)
    if isinstance(array, BFloat16) and array.dtype != np.uint16:
        raise Invalid(f"tensor {name!r} is a BFloat16 of {array.dtype}: want the bits of bfloat16 as uint16")
    if not isinstance(array, BFloat16) and array.dtype.newbyteorder("<") not in _OF_DTYPE:
        raise Invalid(
            f"tensor {name!r} has the type {array.dtype}, which cannot be published: want one of "
            + ", ".join(sorted(_NAMES))
        )
    if array.flags.c_contiguous and array.dtype.byteorder != ">":
        return array
    # ascontiguousarray would make a scalar one-dimensional and drop the subclass.
    kept = np.array(array, dtype=array.dtype.newbyteorder("<"), order="C", copy=True)
    return kept.view(BFloat16) if isinstance(array, BFloat16) else kept


def dtype_name(array: Array) -> str:
    """The format's name of an array's type."""
    return "BF16" if isinstance(array, BFloat16) else _OF_DTYPE[array.dtype.newbyteorder("<")]


class File:
    """One safetensors file, made of arrays, to be streamed any number of times."""

    def __init__(self, name: str, tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.arrays: dict[str, Array] = {}
        header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
        at = 0
        for key, value in tensors.items():
            if not isinstance(key, str) or not key or key == "__metadata__":
                raise Invalid(f"{key!r} cannot name a tensor of {name}: want a text that is not empty")
            array = self.arrays[key] = to_numpy(key, value)
            header[key] = {
                "dtype": dtype_name(array), "shape": list(array.shape), "data_offsets": [at, at + array.nbytes],
            }  # fmt: skip
            at += array.nbytes
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        if len(text) > HEADER_BYTES_MAX:
            raise Invalid(f"the header of {name} would have {len(text)} bytes; the format allows {HEADER_BYTES_MAX}")
        self._head = len(text).to_bytes(8, "little") + text
        self.size = len(self._head) + at

    def chunks(self) -> Iterator[bytes]:
        """The file's bytes."""
        yield self._head
        for array in self.arrays.values():
            flat = memoryview(np.asarray(array).reshape(-1).view(np.uint8).data)
            for at in range(0, len(flat), _CHUNK):
                yield flat[at : at + _CHUNK]  # type: ignore[misc]  # httpx sends anything with a buffer

    def hash(self) -> str:
        """`sha256:` and the digits of the content."""
        digest = hashlib.sha256()
        for chunk in self.chunks():
            digest.update(chunk)
        return "sha256:" + digest.hexdigest()


def check_finite(tensors: Mapping[str, Array], what: str) -> None:
    """Refuse weights that hold NaN or infinity: an engine that loaded them would sample noise."""
    for name, array in tensors.items():
        if array.size and (isinstance(array, BFloat16) or array.dtype.kind == "f"):
            wide = isinstance(array, BFloat16)
            bad = (np.asarray(array) & 0x7F80) == 0x7F80 if wide else ~np.isfinite(array)
            if bad.any():
                at = tuple(int(i) for i in np.unravel_index(int(bad.argmax()), array.shape))
                raise Invalid(
                    f"{what} tensor {name!r} holds {int(bad.sum())} of {array.size} numbers that are not finite, "
                    f"the first at {at}: it is not published (a mask is better no part of the state dict)",
                    detail={"tensor": name, "count": int(bad.sum())},
                )


def decode(content: bytes | bytearray, what: str, *, writable: bool = True) -> tuple[dict[str, Array], dict[str, str]]:
    """The tensors and the metadata of a safetensors body. What does not hold is Invalid.

    The arrays lie in `content` if it is a bytearray, else in one copy of it; they may be written to. Those that are
    not `writable` lie in `content` in any case.
    """
    try:
        header, begin = _header(content)
        metadata = header.pop("__metadata__", {})
        spans = sorted((int(e["data_offsets"][0]), int(e["data_offsets"][1]), name) for name, e in header.items())
        at = 0
        for first, end, name in spans:
            if first != at or end < first:
                raise ValueError(f"tensor {name!r} lies at {first} to {end}, want it to begin at {at}")
            at = end
        if begin + at != len(content):
            raise ValueError(f"it has {len(content)} bytes, and its header says {begin + at}")
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise Invalid(f"{what} is not a whole safetensors file: {error}") from error
    memory = memoryview(content if isinstance(content, bytearray) or not writable else bytearray(content))
    tensors: dict[str, Array] = {}
    for first, end, name in spans:
        dtype, shape = str(header[name].get("dtype")), header[name].get("shape")
        if dtype not in _NAMES:
            raise Invalid(f"{what}: tensor {name!r} has the type {dtype}; this client reads {', '.join(_NAMES)}")
        try:
            extent, kind = tuple(operator.index(n) for n in shape), np.dtype(_NAMES[dtype])
            if min(extent, default=0) < 0 or math.prod(extent) * kind.itemsize != end - first:
                raise ValueError("its size is another")
            array: Array = np.ndarray(extent, kind, memory, begin + first) if end > first else np.empty(extent, kind)
        except (ValueError, TypeError, OverflowError) as error:
            raise Invalid(f"{what}: tensor {name!r} of {end - first} bytes is no {dtype} of shape {shape}") from error
        array = array if array.flags.aligned else array.copy()
        tensors[name] = array.view(BFloat16) if dtype == "BF16" else array
    return tensors, {str(k): str(v) for k, v in metadata.items()}


def _header(content: bytes | bytearray) -> tuple[dict[str, Any], int]:
    """A file's header, and where its tensors begin."""
    if len(content) < 8:
        raise ValueError(f"it has {len(content)} bytes, fewer than the 8 that say how long its header is")
    length = int.from_bytes(content[:8], "little")
    if length > min(len(content) - 8, HEADER_BYTES_MAX):
        raise ValueError(f"its header would have {length} bytes")
    header = json.loads(bytes(memoryview(content)[8 : 8 + length]))
    if not isinstance(header, dict):
        raise TypeError("its header is no object")
    return header, 8 + length
