"""The voice's tokenizer: byte-level BPE whose merges make each word of the domain one token.

Owns its training and the table that says which tokens are the same word (with a space before it, with a capital).
"""

from __future__ import annotations

import tokenizers
from dualar.families import s2_prompt
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from training.domain import words

CONTROL = ["<|im_start|>", "<|im_end|>", "<|voice|>"]


def build_tokenizer(codebook_size: int) -> str:
    """The JSON of a tokenizer.json: the bytes, the domain's words, control tokens and `<|semantic:i|>`."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    template = (s2_prompt.SYSTEM_OPEN, s2_prompt.SYSTEM_PLAIN, s2_prompt.USER_OPEN, s2_prompt.ASSISTANT_OPEN)
    spoken = [form for word in words() for form in (word, word.capitalize(), " " + word, " " + word.capitalize())]
    plain = " ".join(template).replace("<|im_start|>", "").replace("<|voice|>", "")
    trainer = trainers.BpeTrainer(
        vocab_size=100000, min_frequency=1, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator([*spoken, *plain.split(), plain], trainer)
    semantic = [f"<|semantic:{i}|>" for i in range(codebook_size)]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in CONTROL + semantic])
    return str(tokenizer.to_str())


def same_word(tokenizer_json: str) -> list[int]:
    """For each token id the id whose embedding it shares: of the lower-case word without a space before it."""
    tokenizer = tokenizers.Tokenizer.from_str(tokenizer_json)
    vocabulary = tokenizer.get_vocab()
    known = {form for word in words() for form in (word, word.capitalize())}
    table = list(range(len(vocabulary)))
    for token, i in vocabulary.items():
        word = token.removeprefix("Ġ")
        if word in known and word.lower() in vocabulary:
            table[i] = vocabulary[word.lower()]
    return table
