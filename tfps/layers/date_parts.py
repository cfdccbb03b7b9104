"""Dates and times of text as numbers that a model can use."""

from typing import Any

import keras
import tensorflow as tf

_DATE = r"\d{4}[-/]\d{2}[-/]\d{2}([ T].*)?"
_ANY = "2000-01-01"  # in place of what is no date
_NO_TIME = " 00:00"
_YEAR, _DAY = 365.2425, 24.0
_WEEKDAYS = 7


@keras.saving.register_keras_serializable("tfps")
class DateParts(keras.layers.Layer):
    """Takes dates apart: `[batch]` strings give `[batch, 13]` float32.

    A date is `YYYY-MM-DD` or `YYYY/MM/DD`, with a time behind a space or `T` or without; a time
    zone is not looked at. The numbers are whether it is a date, how far it lies between `first_day`
    and `last_day` (0 to 1, beyond outside), the weekday from Monday on as seven of which one is 1,
    and sine and cosine of the day of the year and of the hour. What is no date is thirteen zeros.

    Args:
        first_day, last_day: Days since 1970-01-01, such as the first and the last of the data.
    """

    def __init__(self, first_day: int = 0, last_day: int = 36_525, **kwargs: Any):
        super().__init__(**kwargs)
        self.first_day, self.last_day = first_day, last_day

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "first_day": self.first_day, "last_day": self.last_day}

    def compute_output_spec(self, texts: Any) -> keras.KerasTensor:
        return keras.KerasTensor((*texts.shape, 6 + _WEEKDAYS), "float32")

    def call(self, texts: tf.Tensor) -> tf.Tensor:
        is_date = tf.strings.regex_full_match(texts, _DATE)
        full = tf.where(is_date, texts, _ANY) + _NO_TIME  # behind a time it does not matter
        year, month, day, hour = (
            _number(full, begin, length) for begin, length in ((0, 4), (5, 2), (8, 2), (11, 2))
        )
        days = days_since_1970(year, month, day)
        january = days_since_1970(year, tf.ones_like(month), tf.ones_like(day))
        span = max(1, self.last_day - self.first_day)
        parts = [
            tf.ones_like(year, tf.float32),
            tf.cast(days - self.first_day, tf.float32) / span,
            *_circle(days - january, _YEAR),
            *_circle(hour, _DAY),
        ]
        weekday = tf.one_hot((days + 3) % _WEEKDAYS, _WEEKDAYS)  # 1970-01-01 was a Thursday
        found = tf.concat([tf.stack(parts, -1), weekday], -1)
        return tf.where(is_date[..., None], found, 0.0)


def days_since_1970(year: Any, month: Any, day: Any) -> Any:
    """The day of a date of the Gregorian calendar, for integers or integer tensors.

    Hinnant, "chrono-compatible low-level date algorithms", days_from_civil: years begin in March,
    so that the leap day is their last.
    """
    from_march = (month + 9) % 12
    year = year - from_march // 10
    of_year = (153 * from_march + 2) // 5 + day - 1
    return 365 * year + year // 4 - year // 100 + year // 400 + of_year - 719_468


def _number(texts: tf.Tensor, begin: int, length: int) -> tf.Tensor:
    """The digits at a place of texts; 0 for what are no digits."""
    found = tf.strings.substr(texts, begin, length)
    are_digits = tf.strings.regex_full_match(found, r"\d+")
    return tf.strings.to_number(tf.where(are_digits, found, "0"), tf.int32)


def _circle(place: tf.Tensor, length: float) -> tuple[tf.Tensor, tf.Tensor]:
    angle = tf.cast(place, tf.float32) * (6.283185307179586 / length)
    return tf.sin(angle), tf.cos(angle)
