import pytest

from tfps.data import converters


def test_hexadecimal_ids() -> None:
    convert = converters.hexadecimal_id(100)
    assert convert("") == 0
    assert convert("0000000a") == 11
    assert {convert(f"{value:08x}") for value in range(5000)} == set(range(1, 100))
    with pytest.raises(ValueError, match="hexadecimal"):
        convert("xyz")


def test_a_column_of_hexadecimal_ids_is_that_of_its_cells() -> None:
    convert = converters.hexadecimal_id(1000)
    for texts in (
        ["68fd1e64", "", "FFFFFFFF", "00000000"],
        ["1234567", "123456789"],
        ["68fd1e64", "+1234567"],
        ["68fd1e64", "12 45678", "1"],
        [""],
        [],
    ):
        good = [text for text in texts if " " not in text]
        assert list(convert.column(good)) == list(map(convert, good))
    for bad in (["68fd1e6g"], ["68fd1e64", "12 45678"], ["\u0661\u0662345678"]):
        with pytest.raises(ValueError):  # noqa: PT011 (whatever it says, the rows are read again)
            list(convert.column(bad))
