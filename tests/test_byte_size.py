import pytest

from tfps import byte_size
from tfps.errors import UserError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1B", 1),
        ("16GiB", 16 * 2**30),
        ("16 gib", 16 * 2**30),
        ("1.5MB", 1_500_000),
        ("500kB", 500_000),
        ("2TiB", 2 * 2**40),
    ],
)
def test_a_number_with_a_unit(text, size):
    assert byte_size.parse(text, "--ps_memory") == size


@pytest.mark.parametrize("text", ["16", "GiB", "-1GiB", "0GiB", "16 gigs", "1e9B", "", "16GiB8"])
def test_anything_else_is_refused_with_the_units(text):
    with pytest.raises(UserError, match=r"--ps_memory=.*number and a unit.*B, kB, .*GiB"):
        byte_size.parse(text, "--ps_memory")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1 KiB"),
        (1000 * 2**20, "1,000 MiB"),
        (3 * 2**29, "1.5 GiB"),
    ],
)
def test_sizes_are_shown_in_the_largest_unit(size, text):
    assert byte_size.show(size) == text
