"""Quantities: exact numbers that print as Kubernetes prints them."""

import pytest

from memqos.errors import InputError
from memqos.kube.quantity import MAX_INT64, Quantity, Raw, milli_of, nano_of, times, whole
from memqos.kube.resources import format_amount, hugepage_file_size, hugepage_size, legible
from memqos.units import format_bytes, format_exact_bytes, scientific


def parse(text: Raw) -> Quantity:
    return Quantity.parse(text)


class TestReading:
    @pytest.mark.parametrize(
        ("text", "nano"),
        [
            ("1n", 1),
            ("1u", 10**3),
            ("1m", 10**6),
            ("1", 10**9),
            ("1k", 10**12),
            ("1M", 10**15),
            ("1G", 10**18),
            ("1T", 10**21),
            ("1P", 10**24),
            ("1E", 10**27),
            ("1Ki", 2**10 * 10**9),
            ("1Mi", 2**20 * 10**9),
            ("1Gi", 2**30 * 10**9),
            ("1Ti", 2**40 * 10**9),
            ("1Pi", 2**50 * 10**9),
            ("1Ei", 2**60 * 10**9),
        ],
    )
    def test_every_suffix_is_known(self, text: str, nano: int) -> None:
        assert parse(text).nano == nano
        assert parse(f"-{text}").nano == -nano

    @pytest.mark.parametrize(
        ("text", "nano"),
        [
            ("1e3", 10**12),
            ("1E3", 10**12),
            ("1e+3", 10**12),
            ("2.5e-3", 2_500_000),
            ("1E", 10**27),
            ("+1", 10**9),
            ("007", 7 * 10**9),
            (".5", 5 * 10**8),
            ("5.", 5 * 10**9),
            ("1.5Gi", 3 * 2**29 * 10**9),
            ("0.1Ki", 102_400_000_000),
        ],
    )
    def test_numbers_are_read_exactly(self, text: str, nano: int) -> None:
        assert parse(text).nano == nano

    @pytest.mark.parametrize("text", ["-", "+", ".", "-.", "Gi", "m", "000", "0Gi", "-0", "0e5"])
    def test_a_missing_number_is_zero(self, text: str) -> None:
        assert parse(text).nano == 0
        assert parse(text).canonical == "0"

    @pytest.mark.parametrize(
        "text",
        [
            "",
            " ",
            "1 Gi",
            "1gi",
            "1KI",
            "1K",
            "1KB",
            "1GB",
            "1Mib",
            "1e",
            "1e+",
            "1e1.5",
            "1.2.3",
            "1,5",
            "--1",
            "0x10",
            "1_000",
            "inf",
            "NaN",
            "١",  # digits of other scripts are no digits here
            "1Gi\n",
            "1mi",
            "1Zi",
            "five",
        ],
    )
    def test_what_is_not_a_quantity_is_refused_with_a_way_out(self, text: str) -> None:
        with pytest.raises(InputError, match="is not a quantity") as refused:
            parse(text)
        assert refused.value.hint
        assert refused.value.what.startswith(repr(text.strip(" ")))

    @pytest.mark.parametrize("text", ["Pi", "Ei", "-Ei", ".Ei", "e-10", "-e-10"])
    def test_a_missing_number_is_refused_where_an_int64_would_not_do(self, text: str) -> None:
        with pytest.raises(InputError):
            parse(text)

    def test_spaces_are_trimmed_in_documents_only(self) -> None:
        assert parse(" 1Gi ") == parse("1Gi")
        with pytest.raises(InputError):
            Quantity.parse_bare(" 1Gi ")

    @pytest.mark.parametrize(
        ("raw", "nano"),
        [
            (None, 0),
            (3, 3 * 10**9),
            (-3, -3 * 10**9),
            (1.5, 1_500_000_000),
            (0.1, 100_000_000),
            (1e22, 10**31),
            (1e-07, 100),
        ],
    )
    def test_a_number_in_a_document_is_read_as_it_is_spelled(self, raw: Raw, nano: int) -> None:
        assert parse(raw).nano == nano

    @pytest.mark.parametrize("raw", [float("inf"), float("nan")])
    def test_a_number_that_is_none_is_refused(self, raw: float) -> None:
        with pytest.raises(InputError):
            parse(raw)

    @pytest.mark.parametrize(("text", "nano"), [("0.1n", 1), ("1.0000000001", 10**9 + 1)])
    def test_what_is_finer_than_a_nano_is_rounded_away_from_zero(
        self, text: str, nano: int
    ) -> None:
        assert parse(text).nano == nano
        assert parse(f"-{text}").nano == -nano

    @pytest.mark.parametrize("text", ["8Ei", "9223372036854775808Ki", "100000Ei"])
    def test_binary_amounts_stop_at_the_largest_int64(self, text: str) -> None:
        assert parse(text).value == MAX_INT64
        assert parse(f"-{text}").value == -MAX_INT64

    def test_decimal_amounts_do_not_stop(self) -> None:
        assert parse("100000E").value == 10**23
        assert parse("9223372036854775808").value == MAX_INT64 + 1

    @pytest.mark.parametrize(
        "text",
        ["1e1001", "1e999999999", "9" * 5000, "9" * 300 + "e999", "0.0001e1005", "0." + "1" * 5000],
    )
    def test_an_absurd_number_is_refused_at_once(self, text: str) -> None:
        with pytest.raises(InputError, match="is not a quantity") as refused:
            parse(text)
        assert len(str(refused.value)) < 200

    def test_a_tiny_number_costs_nothing(self) -> None:
        assert parse("1e-999999999").nano == 1
        assert parse("-1e-999999999").nano == -1


class TestPrinting:
    @pytest.mark.parametrize(
        ("text", "canonical"),
        [
            ("1024Mi", "1Gi"),
            ("1536Mi", "1536Mi"),
            ("0.5Gi", "512Mi"),
            ("1000Ki", "1000Ki"),
            ("1Ki", "1Ki"),
            ("0.5Ki", "512"),
            ("0.1Mi", "104857600m"),
            ("2048Ei", "9223372036854775807"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1.5", "1500m"),
            ("0.0015", "1500u"),
            ("1000k", "1M"),
            ("1000E", "1"),  # there is no suffix past E, and Kubernetes then prints none
            ("1e3", "1e3"),
            ("1000e3", "1e6"),
            ("100e3", "100e3"),
            ("15e-1", "1500e-3"),
            ("1e1", "10"),
            ("-1024Mi", "-1Gi"),
            ("+1", "1"),
        ],
    )
    def test_the_canonical_spelling_is_the_shortest_without_a_fraction(
        self, text: str, canonical: str
    ) -> None:
        assert parse(text).canonical == canonical

    @pytest.mark.parametrize("text", ["1.500", "+1", "1.234567k", "1e3", "01Mi", "04Mi", "0"])
    def test_the_spelling_is_kept_where_kubernetes_keeps_it(self, text: str) -> None:
        assert str(parse(text)) == text

    @pytest.mark.parametrize(
        ("text", "printed"),
        [("1000", "1k"), ("08Mi", "8Mi"), ("1.50", "1500m"), ("0.001k", "1"), ("+1000", "1k")],
    )
    def test_and_replaced_where_kubernetes_replaces_it(self, text: str, printed: str) -> None:
        assert str(parse(text)) == printed

    def test_a_number_past_int64_loses_its_spelling(self) -> None:
        assert str(parse("1.500")) == "1.500"
        assert str(parse("1000000000000000.500")) == "1000000000000000500m"

    def test_a_quantity_shows_itself(self) -> None:
        assert repr(parse("1.5Gi")) == "Quantity('1536Mi')"

    @pytest.mark.parametrize(
        ("name", "milli", "text"),
        [
            ("memory", 2**30 * 1000, "1Gi"),
            ("memory", 1500, "1500m"),
            ("hugepages-2Mi", 2**21 * 1000, "2Mi"),
            ("ephemeral-storage", 2**20 * 1000, "1Mi"),
            ("cpu", 1024_000, "1024"),
            ("cpu", 250, "250m"),
            ("example.com/gpu", 2000, "2"),
        ],
    )
    def test_an_amount_is_spelled_in_the_units_of_its_resource(
        self, name: str, milli: int, text: str
    ) -> None:
        assert format_amount(name, milli) == text


class TestLargeNumbers:
    """Kubernetes takes them, however large: nothing that is made of one fails."""

    @pytest.mark.parametrize(
        ("amount", "text"),
        [
            (10**400, "1e400"),
            (10**400 - 10**300, "1e400"),
            (12345 * 10**100, "1.235e104"),
            (12344 * 10**100, "1.234e104"),
            (-(3 * 10**21), "−3e21"),
            (1 << 70, "1.181e21"),
        ],
    )
    def test_one_that_no_unit_is_large_enough_for_is_reported_in_powers_of_ten(
        self, amount: int, text: str
    ) -> None:
        assert scientific(amount) == format_bytes(amount) == format_exact_bytes(amount) == text
        assert format_bytes(amount) == format_bytes(amount) == text

    @pytest.mark.parametrize(
        ("amount", "text"), [(1 << 50, "1Pi"), (1 << 60, "1Ei"), (20 << 60, "20Ei")]
    )
    def test_below_there_is_a_unit(self, amount: int, text: str) -> None:
        assert format_bytes(amount) == format_exact_bytes(amount) == format_bytes(amount) == text
        assert format_bytes(amount) == text

    @pytest.mark.parametrize("name", ["memory", "cpu", "example.com/gpu"])
    @pytest.mark.parametrize("text", ["1e999", "10e399", "1e21", "-5e600"])
    def test_a_spelling_past_all_suffixes_is_still_the_amount(self, name: str, text: str) -> None:
        # Kubernetes forgets the power of ten of 1000E, and so of what is spelled in suffixes.
        assert format_amount(name, milli_of(text)) == str(parse(text))
        assert milli_of(format_amount(name, milli_of(text))) == milli_of(text)

    def test_a_long_one_is_rounded_to_a_power_of_ten(self) -> None:
        assert legible("memory", milli_of("9" * 400)) == "1e400"
        assert legible("memory", milli_of("64Mi")) == "64Mi"
        assert (parse("1e999") + parse("1")).legible == "1e999"

    @pytest.mark.parametrize(
        ("part", "whole", "text"),
        [
            (3, 2, "1.5"),
            (1 << 30, 1 << 20, "1024"),
            (10**400, 10, "1e399"),
            (10**308, 1, "1e308"),
            (10**400, 10**399, "10"),
        ],
    )
    def test_so_is_how_many_times_another_it_is(self, part: int, whole: int, text: str) -> None:
        assert times(part, whole) == text


class TestArithmetic:
    @pytest.mark.parametrize(
        ("left", "right", "total", "difference"),
        [
            ("1Gi", "1Gi", "2Gi", "0"),
            ("1Gi", "1G", "2073741824", "73741824"),
            ("1G", "1Gi", "2073741824", "-73741824"),
            ("2Ki", "24", "2072", "2024"),
            ("1k", "24", "1024", "976"),
            ("1e3", "1k", "2e3", "0"),
        ],
    )
    def test_sums_and_differences_are_exact(
        self, left: str, right: str, total: str, difference: str
    ) -> None:
        assert str(parse(left) + parse(right)) == total
        assert str(parse(left) - parse(right)) == difference

    def test_the_first_operand_gives_the_format_unless_it_is_zero(self) -> None:
        assert str(parse("1Mi") + parse("1048576")) == "2Mi"
        assert str(parse("1048576") + parse("1Mi")) == "2097152"
        assert str(parse("0") + parse("2Mi")) == "2Mi"
        assert str(parse("0") - parse("2Mi")) == "-2Mi"
        assert str(parse("1Mi") - parse("1Mi") + parse("1k")) == "1k"

    def test_less_than_one_is_decimal_whatever_its_suffix(self) -> None:
        half = parse("0.00048828125Ki")
        assert half == parse("0.5")
        assert str(half + parse("2047.5")) == "2048"
        assert str(parse("0.0009765625Ki") + parse("2047")) == "2Ki"

    def test_a_sum_forgets_the_spelling(self) -> None:
        assert str(parse("1.500") + parse("0")) == "1500m"

    def test_equality_and_order_are_those_of_the_value(self) -> None:
        assert parse("1Gi") == parse("1073741824") == parse("1024Mi")
        assert hash(parse("1Gi")) == hash(parse("1024Mi"))
        assert parse("1G") < parse("1Gi")
        assert parse("1Gi") <= parse("1024Mi")
        assert not parse("1Gi") < parse("1024Mi")
        assert parse("1") != 1

    @pytest.mark.parametrize(
        ("text", "value", "milli"),
        [
            ("1", 1, 1000),
            ("1.1", 2, 1100),
            ("-1.1", -2, -1100),
            ("1m", 1, 1),
            ("1u", 1, 1),
            ("-1u", -1, -1),
            ("1500u", 1, 2),
            ("0.5Ki", 512, 512_000),
        ],
    )
    def test_whole_units_and_thousandths_are_rounded_away_from_zero(
        self, text: str, value: int, milli: int
    ) -> None:
        assert (parse(text).value, parse(text).milli) == (value, milli)
        assert milli_of(text) == milli
        assert nano_of(text) == parse(text).nano

    @pytest.mark.parametrize(
        ("milli", "units"), [(0, 0), (1, 1), (1000, 1), (1001, 2), (-1, -1), (-1000, -1)]
    )
    def test_a_part_of_a_byte_counts_as_a_byte(self, milli: int, units: int) -> None:
        assert whole(milli) == units

    def test_whole_numbers_and_thousandths_become_quantities(self) -> None:
        assert str(Quantity.of(2**20, "BinarySI")) == "1Mi"
        assert str(Quantity.of(1000)) == "1k"
        assert str(Quantity.of_milli(1500)) == "1500m"


class TestHugepages:
    @pytest.mark.parametrize(
        ("name", "size", "file"),
        [
            ("hugepages-2Mi", 2**21, "2MB"),
            ("hugepages-1Gi", 2**30, "1GB"),
            ("hugepages-64Ki", 2**16, "64KB"),
            ("hugepages-2048Ki", 2**21, "2MB"),
            ("hugepages-1048576Ki", 2**30, "1GB"),
            ("hugepages-2M", 2_000_000, None),
            ("hugepages-512", 512, None),
            ("hugepages-0", None, None),
            ("hugepages--2Mi", None, None),
            ("hugepages-1500m", None, None),
            ("hugepages-", None, None),
            ("hugepages-big", None, None),
        ],
    )
    def test_the_page_size_is_part_of_the_name(
        self, name: str, size: int | None, file: str | None
    ) -> None:
        assert (hugepage_size(name), hugepage_file_size(name)) == (size, file)
