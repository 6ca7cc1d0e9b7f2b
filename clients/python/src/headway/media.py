"""Images among the tokens of a batch: which, where, and their original bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Processor:
    """What has made a placeholder, as far as the engine tells: empty where it does not."""

    #: Name and revision of the model whose processor it is, and its keyword arguments as JSON.
    name: str = ""
    revision: str = ""
    settings: str = ""


@dataclass(frozen=True)
class MediumInfo:
    """Where an image stands, as the header of a batch says it."""

    #: The sequence of the batch, the place of the placeholder in it, and the number of its ids, which are expanded.
    sequence: int
    offset: int
    length: int
    #: "image".
    modality: str
    #: What names the original bytes, their media type such as "image/png", and their number.
    sha256: str
    type: str
    size: int
    processor: Processor

    @classmethod
    def read_all(cls, said: Iterable[Mapping[str, Any]], by: Iterable[Mapping[str, Any]]) -> tuple[MediumInfo, ...]:
        """The list that a header says, and what its places of processors name."""
        makers = [Processor(**{k: str(v) for k, v in one.items() if k in Processor.__dataclass_fields__}) for one in by]
        return tuple(
            cls(
                int(one["sequence"]), int(one["offset"]), int(one["length"]), str(one["modality"]), str(one["sha256"]),
                str(one["type"]), int(one["size"]), makers[int(one["processor"])],
            )
            for one in said
        )  # fmt: skip


@dataclass(frozen=True)
class Medium:
    """An image of a batch."""

    info: MediumInfo
    _read: Callable[[], bytes]

    @property
    def sequence(self) -> int:
        """The sequence of the batch that it stands in."""
        return self.info.sequence

    @property
    def offset(self) -> int:
        """The place of its placeholder in that sequence."""
        return self.info.offset

    @property
    def length(self) -> int:
        """The number of ids of its placeholder, which is the number of its embeddings."""
        return self.info.length

    @property
    def sha256(self) -> str:
        """What names its bytes: equal images have equal ones."""
        return self.info.sha256

    @property
    def processor(self) -> Processor:
        """What has made the placeholder: use the same for pixel values, or their number differs."""
        return self.info.processor

    def bytes(self) -> bytes:
        """The original bytes, such as those of a PNG file. Fetched at the first call, once for equal images."""
        return self._read()
