"""Who liked which item: the network of He et al., "Neural Collaborative Filtering", WWW 2017."""

import dataclasses

import keras
from keras import layers

import tfps

USERS, ITEMS = 200, 100


@dataclasses.dataclass(frozen=True)
class NeuMF(tfps.Task):
    """A product of two vectors beside a network of two others."""

    dim: int = 8

    def features(self):
        return (
            tfps.Feature("user", "int64", vocabulary=USERS),
            tfps.Feature("item", "int64", vocabulary=ITEMS),
        )

    def label(self):
        return tfps.Feature("liked", "int64", vocabulary=2)

    def group(self):
        return self.features()[0]

    def build_model(self):
        inputs = [keras.Input((), name=x.name, dtype="int64") for x in self.features()]
        ids = list(zip((USERS, ITEMS), inputs, strict=True))
        product, beside = ([layers.Embedding(n, self.dim)(x) for n, x in ids] for _ in range(2))
        hidden = layers.Dense(16, "relu")(layers.Concatenate()(beside))
        both = layers.Concatenate()([layers.Multiply()(product), hidden])
        return keras.Model(inputs, layers.Dense(1)(both))

    def loss(self):
        return keras.losses.BinaryCrossentropy(from_logits=True)

    def optimizer(self):
        return keras.optimizers.Adam(0.01)

    def predictions(self, outputs):
        return outputs[:, 0]

    def metrics(self):
        return {"hr5": tfps.HitRate(5), "ndcg5": tfps.NDCG(5), "gauc": tfps.GroupAUC()}


def get_config():
    data = tfps.Data(negatives=4, negatives_of=("item",))
    train = tfps.Train(batch_size=64, epochs=8, best_metric="max:hr5")
    return tfps.Experiment("neumf", NeuMF(), data, train)
