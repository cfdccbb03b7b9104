"""A SavedModel as TensorFlow Serving has it: the graph, what that restores, and no objects."""

import contextlib

import tensorflow as tf


class GraphAlone:
    """A SavedModel, loaded into a session.

    Attributes:
        takes: Names of what each signature takes, sorted, by the signature's name.
    """

    def __init__(self, directory, session):
        loaded = tf.compat.v1.saved_model.load(session, ["serve"], str(directory))
        self._session, self._signatures = session, loaded.signature_def
        self.takes = {name: sorted(each.inputs) for name, each in self._signatures.items()}

    def predict(self, signature, records):
        """What a signature that takes serialized examples predicts of these."""
        asked = self._signatures[signature]
        feed = {asked.inputs["examples"].name: records}
        return self._session.run(asked.outputs["predictions"].name, feed)


@contextlib.contextmanager
def graph_alone(directory):
    """Loads a SavedModel into a session of its own, which shares no variable with this process."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        yield GraphAlone(directory, session)
