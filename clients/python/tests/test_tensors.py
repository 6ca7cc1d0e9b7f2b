"""Arrays to safetensors and back, checked against the format's own library."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
import safetensors.numpy

import headway
from headway import tensors


def whole(file: tensors.File) -> bytes:
    return b"".join(bytes(chunk) for chunk in file.chunks())


def test_round_trip() -> None:
    rng = np.random.default_rng(1)
    arrays = {
        "f32": rng.standard_normal((3, 5)).astype(np.float32), "f64": rng.standard_normal(4),
        "f16": np.ones(3, np.float16),
        "i64": np.arange(4), "i32": np.arange(3, dtype=np.int32), "u8": np.arange(5, dtype=np.uint8),
        "bool": np.array([True, False]), "scalar": np.array(2.5, np.float32), "empty": np.zeros((0, 4), np.float32),
        "strided": rng.standard_normal((6, 4)).astype(np.float32)[::2, ::-1], "big": np.arange(3, dtype=">i4"),
    }  # fmt: skip
    file = tensors.File("model.safetensors", arrays, {"a": "b"})
    content = whole(file)
    assert len(content) == file.size
    assert file.hash() == "sha256:" + hashlib.sha256(content).hexdigest()
    theirs = safetensors.numpy.load(content)
    ours, metadata = tensors.decode(content, "it")
    assert metadata == {"a": "b"}
    for name, array in arrays.items():
        for found in (theirs[name], ours[name]):
            assert found.shape == array.shape
            np.testing.assert_array_equal(found, array)
    ours["f32"][0, 0] = 1  # arrays that were read may be changed


def test_bfloat16() -> None:
    values = np.array([0.0, -1.5, 3.140625, 1e30, np.inf, -0.0], np.float32)
    bits = headway.narrow(values)
    np.testing.assert_array_equal(headway.widen(bits[:3]), values[:3])
    content = whole(tensors.File("m", {"w": bits.reshape(2, 3)}))
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert header["w"] == {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}
    found = tensors.decode(content, "it")[0]["w"]
    assert isinstance(found, headway.BFloat16)
    np.testing.assert_array_equal(headway.widen(found), headway.widen(bits.reshape(2, 3)))
    with pytest.raises(headway.Invalid, match="uint16"):
        headway.bfloat16(values)


def test_bfloat16_is_not_reckoned_with() -> None:
    bits = headway.narrow(np.array([1.0, 2.0, -4.0], np.float32))
    for reckoned in (
        lambda: bits * 2, lambda: bits + bits, lambda: np.add(1.0, bits), lambda: bits.mean(), lambda: bits.max(),
        lambda: bits < bits, lambda: bits == 1.0, lambda: bits.astype(np.float32), lambda: np.isnan(bits),
    ):  # fmt: skip
        with pytest.raises(headway.Invalid, match=r"headway\.widen before"):
            reckoned()
    with pytest.raises(headway.Invalid, match=r"headway\.narrow after"):
        bits -= 1
    np.testing.assert_array_equal(headway.widen(bits), [1, 2, -4])
    assert np.array_equal(bits, bits.copy()) and not np.array_equal(bits, bits[::-1])
    assert type(bits == headway.narrow(np.ones(3))) is np.ndarray and type(bits.astype(np.uint16)) is np.ndarray
    odd = np.ones(3, np.float32).view(headway.BFloat16)
    with pytest.raises(headway.Invalid, match="BFloat16 of float32"):
        tensors.to_numpy("w", odd)


def test_narrow_rounds_to_even() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    values = rng.integers(0, 1 << 32, 100_000, dtype=np.uint32).view(np.float32)
    ours = headway.widen(headway.narrow(values))
    theirs = torch.from_numpy(values).to(torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(ours, theirs)


def test_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for plain in (np.arange(6, dtype=np.float32).reshape(2, 3), np.array(1.5, np.float32)):
        array = plain.astype(ml_dtypes.bfloat16)
        found = tensors.decode(whole(tensors.File("m", {"w": array})), "it")[0]["w"]
        assert found.shape == plain.shape
        np.testing.assert_array_equal(headway.widen(found), plain)
        again = headway.narrow(plain)
        assert (again.shape, type(headway.widen(again))) == (plain.shape, np.ndarray)


def test_no_array() -> None:
    class Key:
        def __array__(self, *_: object) -> None:
            raise TypeError("keys are no arrays")

    with pytest.raises(headway.Invalid, match="'w' is a Key"):
        tensors.File("m", {"w": Key()})


@pytest.mark.parametrize("value", ["text", [1, 2], np.array(["a"]), np.array([1j]), None])
def test_no_tensor(value: object) -> None:
    with pytest.raises(headway.Invalid, match="'w'"):
        tensors.File("m", {"w": value})


@pytest.mark.parametrize(
    ("array", "at"),
    [
        (np.array([[1, 2], [np.nan, 3]], np.float32), r"\(1, 0\)"),
        (np.array([1.0, np.inf]), r"\(1,\)"),
        (headway.narrow(np.array([1, 2, -np.inf], np.float32)), r"\(2,\)"),
    ],
)
def test_not_finite(array: tensors.Array, at: str) -> None:
    with pytest.raises(headway.Invalid, match=f"model tensor 'w' holds 1 of .* the first at {at}"):
        tensors.check_finite({"ok": np.arange(3), "w": array}, "model")


def test_damaged() -> None:
    content = whole(tensors.File("m", {"w": np.arange(10)}))
    for cut in (0, 4, 8, 20, len(content) - 1):
        with pytest.raises(headway.Invalid, match="not a whole safetensors file"):
            tensors.decode(content[:cut], "it")
    huge = (1 << 40).to_bytes(8, "little") + content[8:]
    with pytest.raises(headway.Invalid):
        tensors.decode(huge, "it")
    for wrong in (
        content.replace(b"[0,80]", b"[8,88]"), content.replace(b"[0,80]", b"[0,72]"), content.replace(b"[10]", b"[11]"),
        content.replace(b"[10]", b"[-1]"), content.replace(b"[10]", b"null"), content.replace(b"I64", b"X64"),
        content.replace(b"I64", b"I32"), content.replace(b"[0,80]", b"[0,\"]"), content.replace(b"[0,80]", b"{}    "),
        (2).to_bytes(8, "little") + b"[]", (4).to_bytes(8, "little") + b"\xff\xff\xff\xff", content + b"more",
    ):  # fmt: skip
        with pytest.raises(headway.Invalid, match="it"):
            tensors.decode(wrong, "it")


def test_in_place() -> None:
    """What was read lies in memory once, and what is not aligned is read all the same."""
    content = bytearray(whole(tensors.File("m", {"w": np.arange(10), "b": np.ones(3, np.uint8), "x": np.arange(2.0)})))
    found = tensors.decode(content, "it")[0]
    found["w"][0] = -1
    assert tensors.decode(content, "it")[0]["w"].tolist() == [-1, *range(1, 10)]
    assert found["x"].tolist() == [0, 1]
    assert found["x"].flags.aligned
    assert np.shares_memory(found["w"], np.frombuffer(content, np.uint8))


def test_no_tensor_of_torch() -> None:
    """What cannot be published is named."""
    torch = pytest.importorskip("torch")
    for value in (torch.eye(3).to_sparse(), torch.empty(3, device="meta"), torch.ones(2).to(torch.float8_e4m3fn)):
        with pytest.raises(headway.Invalid, match="tensor 'w' cannot be published"):
            tensors.File("m", {"w": value})


def test_optimizer_of_another_module() -> None:
    torch = pytest.importorskip("torch")
    from headway.torch import optimizer_state

    head = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(head.parameters())
    head(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    with pytest.raises(headway.Invalid, match=r"shape \[1, 2\] that the model does not name"):
        optimizer_state(optimizer, torch.nn.Linear(2, 2))
    optimizer.state[head.bias]["history"] = [0.5]
    with pytest.raises(headway.Invalid, match="the optimizer's history of bias is a list"):
        optimizer_state(optimizer, head)


def test_step_counts_beside_their_parameters() -> None:
    """torch wants them there of a fused or capturable optimizer, and on the host of another."""
    torch = pytest.importorskip("torch")
    from headway.torch import load_optimizer

    head = torch.nn.Linear(2, 1, device="meta")
    for capturable, device in ((True, "meta"), (False, "cpu")):
        optimizer = torch.optim.AdamW(head.parameters(), capturable=capturable)
        assert load_optimizer(optimizer, head, {"step/weight": np.array(3, np.float32)})
        assert optimizer.state[head.weight]["step"].device.type == device


def test_narrow_of_bfloat16() -> None:
    once = headway.narrow(np.array([1.5, -2.0], np.float32))
    assert headway.widen(headway.narrow(once)).tolist() == [1.5, -2.0]


def test_one_number() -> None:
    """numpy 1 too, which makes a number of a type of its own of an array without dimensions."""
    for number in (np.float32(1.5), np.array(1.5, np.float32)):
        narrow = headway.narrow(number)  # type: ignore[arg-type]
        assert isinstance(narrow, headway.BFloat16)
        assert narrow.shape == headway.widen(narrow).shape == ()
        assert headway.widen(narrow) == 1.5
