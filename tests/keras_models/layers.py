"""Layers that several of the models are made of."""

from typing import Any

import keras
from keras import ops


class TokensAndPlaces(keras.layers.Layer):
    """Rows of tokens, to which rows of their places are added; token 0 may stand for none."""

    def __init__(self, vocabulary: int, length: int, dim: int, mask_zero: bool = False):
        super().__init__()
        self.length = length
        self.tokens = keras.layers.Embedding(vocabulary, dim, mask_zero=mask_zero)
        self.places = keras.layers.Embedding(length, dim)

    def call(self, tokens: Any) -> Any:
        return self.tokens(tokens) + self.places(ops.arange(self.length))

    def compute_mask(self, tokens: Any, mask: Any = None) -> Any:
        return self.tokens.compute_mask(tokens, mask)


class TransformerBlock(keras.layers.Layer):
    """Attention and a dense network, each added to what came in and then normalized."""

    def __init__(
        self, dim: int, heads: int, units: int, dropout: float = 0.1, causal: bool = False
    ):
        super().__init__()
        self.supports_masking = True
        self.causal = causal
        self.attention = keras.layers.MultiHeadAttention(heads, dim // heads, dropout=dropout)
        self.dense = keras.Sequential(
            [keras.layers.Dense(units, activation="gelu"), keras.layers.Dense(dim)]
        )
        self.norms = [keras.layers.LayerNormalization(epsilon=1e-6) for _ in range(2)]
        self.drops = [keras.layers.Dropout(dropout) for _ in range(2)]

    def call(self, inputs: Any, training: bool = False) -> Any:
        attended = self.attention(inputs, inputs, use_causal_mask=self.causal, training=training)
        hidden = self.norms[0](inputs + self.drops[0](attended, training=training))
        changed = self.drops[1](self.dense(hidden), training=training)
        return self.norms[1](hidden + changed)


def mlp(hidden: Any, units: tuple[int, ...], dropout: float = 0.0) -> Any:
    """Dense layers with relu, one after the other."""
    for each in units:
        hidden = keras.layers.Dense(each, activation="relu")(hidden)
        if dropout:
            hidden = keras.layers.Dropout(dropout)(hidden)
    return hidden
