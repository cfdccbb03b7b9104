"""The content of an exported model's `schema.json`, for models that tests make themselves."""

from tfps.export import exported_files


def schema(features, labels=(), **facts):
    """A feature is a `Feature`, or what stands for one in the file."""
    described = [
        [each if isinstance(each, dict) else each.schema() for each in some]
        for some in (features, labels)
    ]
    return {
        "format": exported_files.FORMAT,
        "features": described[0],
        "labels": described[1],
        "converted": [],
        "signatures": exported_files.SIGNATURES,
        "sizes": {},
        "arguments": {},
        "tables": [],
        **facts,
    }
