"""All the models."""

from tests.keras_models import (
    baskets,
    habits,
    histories,
    interactions,
    recommendation,
    several_tasks,
    structured,
    tabular_networks,
    text,
    time_series,
    vision,
)

ALL = (
    *structured.CASES,
    *tabular_networks.CASES,
    *interactions.CASES,
    *recommendation.CASES,
    *histories.CASES,
    *baskets.CASES,
    *text.CASES,
    *time_series.CASES,
    *vision.CASES,
    *several_tasks.CASES,
    *habits.CASES,
)
