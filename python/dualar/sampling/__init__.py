"""The samplers: from rows of logits to tokens, with noise that depends on seed, step, stream and id alone.

`chains.py` has the three samplers, `noise.py` the noise.
"""

from dualar.config import SamplingConfig
from dualar.sampling.chains import LogitsError, probabilities, ras_sample, sample
from dualar.sampling.noise import uniform

__all__ = ["LogitsError", "SamplingConfig", "probabilities", "ras_sample", "sample", "uniform"]
