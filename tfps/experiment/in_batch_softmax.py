"""The loss of a two-tower model whose negatives are the items of a batch's other records."""

from typing import Any

import keras
import tensorflow as tf

from tfps import arguments
from tfps.errors import UserError, reason_of


def in_batch_softmax(
    users: tf.Tensor,
    items: tf.Tensor,
    item_ids: tf.Tensor,
    log_q: tf.Tensor,
    temperature: float = 1.0,
    sample_weight: Any = None,
) -> tf.Tensor:
    """The softmax loss of each user's item among all items of the batch.

    A batch holds frequent items more often, and a softmax over it would push them down. So an
    item's logit is corrected by the logarithm of the chance `q` to meet it: with users `u` and
    items `v`, `logit = <u, v> / temperature - log q`, of the user's own item, too. The mean over
    batches is then near that of a softmax over all items (Bengio and Senécal, "Adaptive importance
    sampling to accelerate training of a neural probabilistic language model", IEEE Transactions on
    Neural Networks 2008; Yi et al., "Sampling-bias-corrected neural modeling for large corpus item
    recommendations", RecSys 2019, equation 6). The same item in another record is no negative: it
    is left out.

    Args:
        users: Vectors of the records' users, `[batch, dim]`.
        items: Vectors of the items that they chose, `[batch, dim]`.
        item_ids: Ids of these items, `[batch]` or `[batch, 1]`, int64 or string.
        log_q: Logarithm of each item's share in the training records, `[batch]` or `[batch, 1]`; a
            constant that is the same for all changes nothing.
        temperature: What dot products are divided by, above 0; vectors of length 1 need one well
            below 1.
        sample_weight: What each record's part is multiplied by, `[batch]` or `[batch, 1]`; a rating
            or a time watched in Yi et al. None for 1.

    Returns:
        The mean over the records, scalar float32.

    Raises:
        UserError: If the temperature is not positive, something is no tensor, or users and items
            are not vectors of one length.
    """
    where = "in_batch_softmax(): "
    temperature = arguments.converted(temperature, float, f"{where}temperature=")
    if not temperature > 0:
        raise UserError(f"{where}temperature={temperature} must be positive")
    try:
        users, items, log_q = (tf.cast(each, tf.float32) for each in (users, items, log_q))
        ids, log_q = tf.reshape(item_ids, [-1]), tf.reshape(log_q, [-1])
        weights = 1.0 if sample_weight is None else sample_weight
        weights = tf.reshape(tf.cast(weights, tf.float32), [-1])
    except (TypeError, ValueError, tf.errors.OpError) as error:
        raise UserError(
            f"{where}users, items, log_q and sample_weight must be tensors of numbers, and "
            f"item_ids one of ids: {reason_of(error)}"
        ) from error
    if users.shape.rank != 2 or not users.shape.is_compatible_with(items.shape):
        raise UserError(
            f"{where}users {users.shape} and items {items.shape} are not vectors of "
            "one length, [batch, dim] each"
        )
    is_for_each = ids.shape.is_compatible_with(users.shape[:1])
    if not (is_for_each and _fits(log_q, ids) and _fits(weights, ids)):
        raise UserError(
            f"{where}item_ids {ids.shape}, log_q {log_q.shape} and sample_weight {weights.shape} "
            f"are not one value for each of users {users.shape}"
        )
    logits = tf.matmul(users, items, transpose_b=True) / temperature
    logits -= log_q
    own = tf.range(tf.size(ids))
    is_same = tf.equal(ids[:, tf.newaxis], ids) & tf.not_equal(own[:, tf.newaxis], own)
    logits = tf.where(is_same, tf.float32.min, logits)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return loss(own, logits, sample_weight=None if sample_weight is None else weights)


def _fits(values: tf.Tensor, ids: tf.Tensor) -> bool:
    """Whether there is a value for each id, or one for all."""
    return bool(values.shape.is_compatible_with(ids.shape) or values.shape == [1])
