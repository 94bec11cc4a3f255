"""Name the guided attention heads in a model file that was written before files could: a new key, all else as it was.

    python -m training.name_heads IN.gguf OUT.gguf

With the key (`dualar.alignment_heads`) `word_times=True` tells when each word is heard. `export.py` writes it too.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from dualar.convert.gguf_writer import Encoded, Tensor, Value, write_gguf
from dualar.gguf import names
from dualar.runtime import open_file

from training.export import ALIGNMENT_HEADS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    file = open_file(options.source)

    def whole(name: str, rows: int) -> object:
        return [file.row_bytes(name, 0, rows)]

    metadata: dict[str, Value | Encoded] = {key: Encoded(file.metadata_bytes(key)) for key in file.metadata}
    metadata[names.ALIGNMENT_HEADS] = ALIGNMENT_HEADS
    tensors = [
        Tensor(name, shape, kind.lower(), partial(whole, name, shape[0])) for name, kind, shape in file.tensors()
    ]
    write_gguf(options.output, metadata, tensors)


if __name__ == "__main__":
    main()
