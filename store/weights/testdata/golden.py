"""Writes golden.bin, what numpy and ml_dtypes make of floats: python golden.py

Little-endian: the SHA-256 of 65536 float32, the values of every float16 (NaN as 0); 256
float32, those of every float8_e4m3fn (NaN as 0); then 8192 records of a float32, its bfloat16 and, where its
magnitude is at most 448, its float8_e4m3fn (else 0); then a matrix of 40 x 50 float32, its
scales by row, and its elements divided by them as float8_e4m3fn.
"""

import hashlib

import ml_dtypes
import numpy as np

rng = np.random.default_rng(8)
half = np.arange(65536, dtype="<u2").view(np.float16).astype("<f4")
eight = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype("<f4")
half[np.isnan(half)] = 0
eight[np.isnan(eight)] = 0
bits = rng.integers(0, 1 << 32, 4096, dtype=np.uint32)
ties = (rng.integers(0, 1 << 13, 2048, dtype=np.uint32) << 19) | rng.integers(0, 2, 2048, dtype=np.uint32)
near = (rng.standard_normal(2048) * np.exp2(rng.integers(-12, 9, 2048))).astype(np.float32).view(np.uint32)
values = np.concatenate([bits, ties, near]).view(np.float32)
values = np.where(np.isnan(values), np.float32(0.5), values)
small = np.where(np.abs(values) <= 448, values, 0).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
records = np.zeros(len(values), dtype=[("value", "<f4"), ("bf16", "<u2"), ("e4m3", "u1")])
records["value"], records["e4m3"] = values, small
records["bf16"] = values.astype(ml_dtypes.bfloat16).view(np.uint16)
matrix = rng.standard_normal((40, 50)).astype("<f4")
scales = (np.abs(matrix).max(axis=1, keepdims=True) / np.float32(448)).astype("<f4")
quantised = (matrix / scales).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
with open("golden.bin", "wb") as f:
    f.write(hashlib.sha256(half.tobytes()).digest())
    for part in (eight, records, matrix, scales, quantised):
        f.write(part.tobytes())
