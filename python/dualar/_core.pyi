"""The compiled core (C++17 on ggml). Private: use the names that `dualar` exports.

Arrays crossing this border are C-contiguous numpy arrays. Every method that computes releases the GIL.
Errors: ValueError blames the caller, ModelError the file, BackendError the device.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dualar.families.qwen3_prompt import TalkerPrompt

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]
Integers = npt.NDArray[np.integer[Any]]

testing: Any  # what tests look into the core with; only in a build with DUALAR_TESTING=ON

class ModelError(RuntimeError):
    """A model file is wrong: the text names the key or tensor, what was expected and what came."""

class BackendError(RuntimeError):
    """A device is missing, out of memory, or failed to compute."""

ggml_version: str

class DeviceInfo:
    """One device that this build can use."""

    @property
    def name(self) -> str: ...  # what `device=` takes: "cpu", "cuda", "cuda1", "metal", "vulkan"
    @property
    def kind(self) -> str: ...  # "cpu", "gpu", "igpu" or "accel"
    @property
    def description(self) -> str: ...
    @property
    def memory_total(self) -> int: ...  # bytes; 0 where the backend does not say
    @property
    def memory_free(self) -> int: ...

def devices() -> list[DeviceInfo]: ...
def usable_cpus() -> int:
    """min(CPU affinity, cgroup quota), at least 1."""

def cpu_kernels() -> str:
    """The variant of dualar's own kernels that this CPU runs: avx512, avx2, neon_dot, neon or plain."""

def default_threads() -> int:
    """min(usable_cpus(), full cores that are fast): hyper-threads count once, little and efficiency cores not."""

def set_log_sink(sink: Callable[[int, str], None] | None) -> None:
    """Send ggml's log lines to `sink(level, text)`; level is a `logging` level number."""

class Runtime:
    """A device and its threads. Computations on one Runtime run one after the other, each on as many of the threads
    as cost least at the time; results have the same bits on any number.

    _exactly, for tests alone: all `threads` are started, however few CPUs there are, and each computation uses all."""

    def __init__(self, *, device: str = "cpu", threads: int | None = None, _exactly: bool = False) -> None: ...
    @property
    def device(self) -> str: ...
    @property
    def threads(self) -> int: ...  # at most: never more than usable_cpus()

class ModelFile:
    """One GGUF file, memory-mapped; checked against its own size on opening (ModelError)."""

    def __init__(self, path: str | bytes) -> None: ...  # bytes as os.fsencode gives them
    @property
    def path(self) -> str: ...
    @property
    def architecture(self) -> str: ...
    @property
    def metadata(self) -> dict[str, Any]: ...  # key -> bool | int | float | str | list of these
    @property
    def nbytes(self) -> int: ...
    def get(self, key: str) -> Any: ...  # a metadata value, or None where the key is absent
    def tensors(self) -> list[tuple[str, str, tuple[int, ...]]]: ...  # name, ggml type, numpy shape
    def metadata_bytes(
        self, key: str
    ) -> bytes: ...  # a value as the file has it, its type first; ValueError for no key
    def rows(self, name: str, first: int, last: int) -> Float32:
        """Rows of a matrix's first axis, float32. ModelError for no such tensor, ValueError for a type or rows."""
    def row_bytes(self, name: str, first: int, last: int) -> npt.NDArray[np.uint8]: ...  # the same as the file has them
    def forget(self, name: str) -> None: ...  # the tensor's pages may leave memory; reading brings them back

def quantize(values: Float32, type_name: str) -> npt.NDArray[np.uint8]:
    """values [rows, columns] -> the rows' bytes in a ggml type that weights may have ("q8_0").

    ValueError for another type, or columns that are no multiple of its block.
    """

class StepOutput:
    """logits [n] (or [T, n]) and hidden [D] (or [T, D]), float32. `hidden` is what the Fast-AR is given."""

    @property
    def logits(self) -> Float32: ...
    @property
    def hidden(self) -> Float32: ...

class Sampler:
    """How an id is drawn from a row of logits, of the family "fish", "hf" or "cosyvoice": `dualar.sampling` defines it.

    history_window: how many of the ids drawn last count, -1 being all. repetition_penalty (hf): of those. The others
    draw an id again that is among them repeat_threshold times or more (<= 0: never); fish with redraw_temperature and
    redraw_top_p. Ranges as in `dualar.config`; ValueError.
    """

    def __init__(
        self,
        family: str,
        *,
        temperature: float,
        top_p: float,
        top_k: int,
        history_window: int = 0,
        repetition_penalty: float = 1.0,
        repeat_threshold: float = 0.0,
        redraw_temperature: float = 1.0,
        redraw_top_p: float = 1.0,
    ) -> None: ...
    def draw(self, logits: Float32, *, seed: int, step: int, stream: int, history: Integers | None = None) -> int:
        """An id of the row [V]; history [W]: ids drawn before, the newest last. ModelError for NaN, or nothing above
        -inf."""

class Prefix:
    """What a session's first positions left in its cache, on the host. Immutable."""

    @property
    def positions(self) -> int: ...
    @property
    def nbytes(self) -> int: ...

class Session:
    """KV caches, text and position of one running request, of any family.

    One thread at a time; ValueError for a second caller.
    """

    @property
    def position(self) -> int: ...
    @property
    def max_positions(self) -> int: ...
    @property
    def nbytes(self) -> int: ...  # KV caches, bytes
    @property
    def graph_builds(self) -> int: ...  # graphs built since creation, Slow-AR and Fast-AR
    @property
    def kv_type(self) -> str: ...  # "f32" or "f16"
    def attention_rows(self, positions: int) -> int:
        """Rows of the cache that attention runs over where a feed ends at so many positions."""
    def snapshot(self) -> Prefix:
        """What the positions so far left behind; ValueError at position 0."""
    def restore(self, prefix: Prefix) -> None:
        """Go on from a snapshot, at position 0, as if its positions had been fed in the same calls.

        ValueError for a snapshot of another model, type or of more positions than there are, or at another position.
        """
    def prefill(
        self, prompt: Integers | TalkerPrompt, *, all_positions: bool = False, full_vocab: bool = False
    ) -> StepOutput:
        """Logits and hidden of the last position (of all T with all_positions).

        prompt: int [1 + N, T]; of Qwen3TTS a TalkerPrompt, whose text lies over the steps that follow.
        """
    def step(self, column: Integers, *, full_vocab: bool = False) -> StepOutput:
        """column int [1 + N]: a token id and its frame's codes; of Qwen3TTS the main id, the first of its codes."""
    def fast_begin(self, hidden: Float32, code: int) -> Float32:
        """Start a frame: hidden [D] and its semantic code -> logits [C] of codebook 1."""
    def fast_step(self, code: int) -> Float32:
        """The code just drawn -> logits [C] of the next codebook; at most N - 2 times after fast_begin."""
    def fast_decode(self, hidden: Float32, prefix: Integers) -> Float32:
        """As Model.fast_decode, with this session's graphs."""
    def watch(self, first: int, last: int) -> None:
        """From now on keep how the alignment heads attend to positions first to last - 1; nothing else changes.

        ValueError for positions that there are not, and for a model that has no such heads.
        """
    def alignment(self) -> Float32:
        """[heads, last - first] at the position computed last: a softmax over the watched ones alone. ValueError where
        none are watched, or nothing was computed after them."""
    def reset(self) -> None: ...
    def truncate(self, positions: int) -> None: ...
    def _keep_probes(self, keep: bool) -> None: ...
    def _probes(self) -> dict[str, Float32]: ...

class Model:
    """The transformers of one file, of any family: immutable weights. `session()` gives the state to run them.

    im_end_id: the id that ends speech, for files that do not say it (DualAR's). ModelError for a file of no family.
    """

    def __init__(self, file: ModelFile, runtime: Runtime, *, im_end_id: int | None = None) -> None: ...
    @property
    def num_codebooks(self) -> int: ...  # N
    @property
    def codebook_size(self) -> int: ...  # C
    @property
    def hidden_size(self) -> int: ...  # D
    @property
    def vocab_size(self) -> int: ...  # V
    @property
    def context_length(self) -> int: ...
    @property
    def semantic_begin_id(self) -> int: ...
    @property
    def semantic_end_id(self) -> int: ...
    @property
    def im_end_id(self) -> int: ...
    @property
    def has_fast_ar(self) -> bool: ...
    @property
    def end_code(self) -> int | None: ...  # the code that fills the frame that ends speech, where no id does
    @property
    def prefill_piece(self) -> int: ...  # positions that a prefill computes at once; fed in such pieces, the same bits
    @property
    def main_ids(self) -> Int32: ...  # token id of each sliced logit: semantic ids ascending, then im_end_id (-1: none)
    @property
    def alignment_heads(self) -> list[tuple[int, int]]: ...  # (layer, head) of the Slow-AR, as the file names them
    @property
    def unused_tensors(self) -> list[str]: ...
    def load(self) -> None:
        """Bring the weights to the device, once; session() does it where it has not been done."""
    def kv_bytes(self, max_positions: int, kv_type: str = "auto") -> int: ...
    def session(self, *, max_positions: int, kv_type: str = "auto") -> Session: ...
    def fast_decode(self, hidden: Float32, prefix: Integers) -> Float32:
        """hidden [D], prefix int [1 <= k < N] (the semantic code first) -> logits [C] of codebook k."""

class DualAR(Model):
    """A model of the S2 family: a Slow-AR and a Fast-AR."""

    def __init__(self, file: ModelFile, runtime: Runtime, *, im_end_id: int) -> None: ...

class Qwen3TTS(Model):
    """A model of the Qwen3-TTS family: a talker and a code predictor. Its semantic ids are the codes themselves."""

    def __init__(self, file: ModelFile, runtime: Runtime) -> None: ...
    @property
    def text_vocab_size(self) -> int: ...

class Batch:
    """Sessions of one model, of any family, taken a step further together, each weight read once for all of them.

    Any sessions of the model may come together in any call, each once; every session keeps its caches and its position.
    Where the products are the core's own (weights in F32, F16, Q8_0, Q4_0 and Q4_K on the CPU), each row has the bits
    of its session alone. in_turn: one session after the other, as devices other than the CPU always do. fast_ar: how
    fast_frames computes logits, "cached" or "recompute" (the frame anew for each code); the codes are the same.
    """

    def __init__(self, model: Model, *, in_turn: bool = False, fast_ar: str = "cached") -> None: ...
    @property
    def graph_builds(self) -> int: ...  # for each number of rows, which are kept for the last 8 numbers
    def step(self, sessions: Sequence[Session], columns: Integers) -> tuple[Float32, Float32]:
        """columns int [rows, 1 + N] -> logits [rows, C + 1], hidden [rows, D]. On an error no session has moved."""
    def _profile(self, sessions: Sequence[Session], columns: Integers) -> dict[str, float]: ...  # seconds by kind
    def fast_begin(self, sessions: Sequence[Session], hidden: Float32, codes: Integers) -> Float32:
        """hidden [rows, D] and semantic codes [rows] -> logits [rows, C] of codebook 1."""
    def fast_step(self, sessions: Sequence[Session], codes: Integers) -> Float32:
        """The codes just drawn [rows] -> logits [rows, C] of the next codebook."""
    def fast_frames(
        self,
        sessions: Sequence[Session],
        hidden: Float32,
        codes: Integers,
        draws: Sequence[tuple[Sampler, int, int]],
    ) -> tuple[Int32, list[str | None], str | None]:
        """Whole frames: hidden [rows, D] and semantic codes [rows], then one draw for each further codebook.

        draws: for each row the sampler of its residual codes, its seed and the frame's index; codebook i has the noise
        of (seed, index, i), and the residual codes before it as history. Gives codes int32 [rows, N]; for each row why
        it could not be drawn from, or None; and why the codes of all rows are 0 from some codebook on where the device
        failed, or None.
        """

def codec_tensors(file: ModelFile) -> str:
    """How the names of a codec's tensors begin in files of this architecture; ModelError for an unknown one."""

class Codec:
    """A codec's weights, of the family that the file's architecture says. `stream()` gives the state to decode with."""

    def __init__(self, file: ModelFile, runtime: Runtime) -> None: ...
    @property
    def sample_rate(self) -> int: ...
    @property
    def samples_per_frame(self) -> int: ...
    @property
    def num_codebooks(self) -> int: ...
    @property
    def codebook_sizes(self) -> list[int]: ...  # [num_codebooks], the semantic codebook first
    @property
    def unused_tensors(self) -> list[str]: ...
    @property
    def clamps_codes(self) -> bool: ...  # a code at or above its codebook's size: the last entry, or a ValueError?
    @property
    def can_encode(self) -> bool: ...  # does the file hold the encoder's tensors?
    def load(self) -> None: ...  # the decoder's weights, once; else the first stream() does
    def stream(self, *, max_frames: int = 8) -> CodecStream: ...
    def encoder(self, *, max_frames: int = 16) -> CodecEncoder: ...

class CodecSnapshot:
    """Where a stream was after some frames: what it must remember of them, on the host."""

    @property
    def nbytes(self) -> int: ...

class CodecStream:
    """Streaming decoder state. push() gives exactly k frames of samples for k frames of codes."""

    @property
    def max_frames(self) -> int: ...  # frames that one push may hold
    @property
    def nbytes(self) -> int: ...
    @property
    def graph_builds(self) -> int: ...
    def push(self, codes: Integers) -> Float32:
        """codes int [num_codebooks, 0 <= k <= max_frames] -> samples float32 [k * samples_per_frame]."""
    def reset(self) -> None: ...
    def snapshot(self) -> CodecSnapshot: ...
    def restore(self, snapshot: CodecSnapshot) -> None: ...  # ValueError: of another codec or max_frames
    def _profile(self, codes: Integers) -> dict[str, float]: ...  # seconds of one push by kind of layer
    def _probe(self, codes: Integers) -> dict[str, Float32]: ...  # a push, and what named layers gave, flat

class CodecEncoder:
    """Encoder state of one clip. Pieces of whole frames give the same codes as the clip at once."""

    @property
    def max_frames(self) -> int: ...  # frames that one push may hold
    @property
    def nbytes(self) -> int: ...
    @property
    def graph_builds(self) -> int: ...
    def push(self, samples: Float32) -> Int32:
        """samples float32 [k * samples_per_frame], 0 <= k <= max_frames -> codes int32 [num_codebooks, k]."""
    def finish(self, samples: Float32) -> Int32:
        """The clip's last samples, at most max_frames and not necessarily whole ones, -> codes of the frames that they
        begin. Then only reset() may follow."""
    def reset(self) -> None: ...
    def _probes(self) -> dict[str, Float32]: ...  # what the last push gave on its way, flat; "latent" is quantized

class SpeakerEncoder:
    """The weights of Qwen3-TTS's speaker encoder."""

    def __init__(self, file: ModelFile, runtime: Runtime) -> None: ...
    @staticmethod
    def present(file: ModelFile) -> bool: ...
    @property
    def sample_rate(self) -> int: ...
    @property
    def mel_dim(self) -> int: ...
    @property
    def dim(self) -> int: ...
    @property
    def min_frames(self) -> int: ...  # of a mel spectrogram
    @property
    def unused_tensors(self) -> list[str]: ...
    def embed(self, mel: Float32) -> Float32:
        """mel [frames, mel_dim] -> [dim]."""
    def _probe(self, mel: Float32) -> dict[str, Float32]: ...  # the same, and what named layers gave, flat

class WaveNet:
    """The weights of a WaveNet file; `initial_state()` gives the state to go sample by sample."""

    def __init__(self, file: ModelFile, runtime: Runtime) -> None: ...
    @property
    def channels(self) -> int: ...  # C
    @property
    def condition_channels(self) -> int: ...  # H
    @property
    def skip_channels(self) -> int: ...  # S
    @property
    def quantization_levels(self) -> int: ...  # Q
    @property
    def kernel_size(self) -> int: ...  # K
    @property
    def dilations(self) -> list[int]: ...  # one per block
    @property
    def sample_rate(self) -> int: ...
    @property
    def receptive_field(self) -> int: ...
    @property
    def unused_tensors(self) -> list[str]: ...
    def forward(self, classes: Integers, condition: Float32) -> Float32:
        """classes int [B, T], condition [B, H, T] -> logits [B, Q, T]."""
    def initial_state(self, batch: int) -> WaveNetState: ...
    def step(self, classes: Integers, condition: Float32, state: WaveNetState) -> Float32:
        """classes int [B], condition [B, H] -> logits [B, Q]."""
    def prime(self, classes: Integers, condition: Float32, state: WaveNetState) -> None:
        """classes int [B, T], condition [B, H, T]."""
    def generate(
        self,
        first: Integers,
        condition: Float32,
        state: WaveNetState,
        *,
        temperature: float,
        uniforms: npt.NDArray[np.float64] | None,
    ) -> Int32:
        """first int [B], condition [B, H, n], uniforms [B, n] in [0, 1) -> classes int32 [B, n]. Temperature 0 is
        greedy, and needs no uniforms."""

class WaveNetState:
    """What a batch of sequences has seen; one thread at a time.

    Made by `WaveNet.initial_state` and `WaveNet.prime`. For each block a ring of its last (K - 1) * dilation inputs,
    zeros at the start. States never see each other.
    """

    @property
    def batch_size(self) -> int: ...  # sequences that go forward together, B
    @property
    def position(self) -> int: ...  # samples fed so far
    @property
    def nbytes(self) -> int: ...  # of the rings: 4 B C sum((K - 1) dilation)
    def copy(self) -> WaveNetState:
        """A state that goes on from here on its own."""
    def reset(self) -> None:
        """Back to the start of a clip: zeros in every ring."""

# For the tests of this project only.
def _dequantize(data: npt.NDArray[np.uint8], type_name: str, rows: int, cols: int) -> Float32: ...
