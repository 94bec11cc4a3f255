"""The checks of code matrices that callers give.

Owns `check_codes` (codes for a codec, which may clamp) and `require_codes` (codes for a prompt or a voice, which must
be in range). Leaves what the codes mean to the codec and the prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def check_codes(
    codes: npt.ArrayLike, *, num_codebooks: int, limits: Sequence[int] | None = None
) -> npt.NDArray[np.int32]:
    """A code matrix as int32 [num_codebooks, T], or ValueError saying what is wrong with it.

    limits [num_codebooks]: the sizes of the codebooks, which codes must be below; None where the codec clamps codes.
    """
    array: npt.NDArray[Any] = np.asarray(codes)
    if array.ndim != 2 or array.shape[0] != num_codebooks:
        raise ValueError(f"[codes] expected shape [{num_codebooks}, T], got {list(array.shape)}")
    if array.dtype.kind not in "iu":
        raise ValueError(f"[codes] expected integers, got dtype {array.dtype}")
    if array.dtype.kind == "i" and array.size and int(array.min()) < 0:
        codebook, frame = (int(i) for i in np.argwhere(array < 0)[0])
        raise ValueError(
            f"[codes] expected codes >= 0, got {int(array[codebook, frame])} at codebook {codebook}, frame {frame}"
        )
    if limits is not None and array.size:
        above = array >= np.asarray(limits)[:, None]
        if above.any():
            codebook, frame = (int(i) for i in np.argwhere(above)[0])
            raise ValueError(
                f"[codes] expected codes below {limits[codebook]}, got {int(array[codebook, frame])} at codebook "
                f"{codebook}, frame {frame}"
            )
    # The codec clamps codes that are too large: narrowed to int32, they only have to stay too large.
    narrowed: npt.NDArray[np.int32] = np.minimum(array.astype(np.uint64), np.uint64(2**31 - 1)).astype(np.int32)
    return narrowed


def require_codes(name: str, codes: npt.ArrayLike, *, num_codebooks: int, codebook_size: int) -> npt.NDArray[np.int64]:
    """Codes of shape [num_codebooks, T >= 1] in [0, codebook_size) as int64, or ValueError saying what is wrong."""
    array: npt.NDArray[Any] = np.asarray(codes)
    if array.ndim != 2 or array.shape[0] != num_codebooks or array.shape[1] < 1:
        raise ValueError(f"[{name}] expected shape [{num_codebooks}, T >= 1], got {list(array.shape)}")
    if array.dtype.kind not in "iu":
        raise ValueError(f"[{name}] expected integers, got dtype {array.dtype}")
    wrong = np.argwhere((array < 0) | (array >= codebook_size))
    if len(wrong):
        codebook, frame = (int(i) for i in wrong[0])
        raise ValueError(
            f"[{name}] expected codes in [0, {codebook_size}), got {int(array[codebook, frame])} "
            f"at codebook {codebook}, frame {frame}"
        )
    return array.astype(np.int64)
