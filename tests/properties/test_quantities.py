"""What holds for every quantity."""

from fractions import Fraction

from hypothesis import assume, given
from hypothesis import strategies as st
from tests.properties.strategies import numbers, quantities, quantity_texts

from memqos.errors import InputError
from memqos.kube.quantity import MAX_INT64, NANOS, Quantity, milli_of, whole
from memqos.kube.resources import format_amount
from memqos.units import format_bytes, format_exact_bytes, scientific

DECIMAL = enumerate(["n", "u", "m", "", *"kMGTPE"], start=-3)
BINARY = enumerate(["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"], start=1)
UNITS = {suffix: Fraction(1000) ** power for power, suffix in DECIMAL}
UNITS |= {suffix: Fraction(1024) ** power for power, suffix in BINARY}

BEYOND_SUFFIXES = 10**21 * NANOS
"""From here on Kubernetes prints a decimal quantity without the suffix it would need."""


@given(quantity_texts)
def test_a_quantity_survives_print_and_parse(text: str) -> None:
    quantity = Quantity.parse(text)
    assume(abs(quantity.nano) < BEYOND_SUFFIXES)
    assert Quantity.parse(str(quantity)) == quantity
    assert Quantity.parse(quantity.canonical) == quantity


@given(quantity_texts)
def test_a_canonical_spelling_is_its_own(text: str) -> None:
    quantity = Quantity.parse(text)
    assume(abs(quantity.nano) < BEYOND_SUFFIXES)
    again = Quantity.parse(quantity.canonical)
    assert again.canonical == quantity.canonical
    assert str(again) == quantity.canonical


@given(numbers, st.sampled_from(sorted(UNITS)))
def test_a_quantity_is_its_number_times_its_unit(number: str, suffix: str) -> None:
    """Rounded away from zero to whole nanos, and in binary units no further than an int64."""
    exact = Fraction(number) * UNITS[suffix] * NANOS
    assume("i" not in suffix or abs(exact) <= MAX_INT64 * NANOS)
    nano = Quantity.parse(number + suffix).nano
    assert abs(exact) <= abs(nano) < abs(exact) + 1
    assert nano * exact >= 0


@given(quantities, quantities)
def test_adding_and_taking_away_leaves_the_amount(left: Quantity, right: Quantity) -> None:
    assert left + right == right + left
    assert left + right - right == left


@given(quantities, quantities)
def test_order_is_that_of_the_difference(left: Quantity, right: Quantity) -> None:
    assert (left < right) == ((left - right).nano < 0)
    assert (left <= right) == (not right < left)
    assert (left == right) == ((left - right).nano == 0)
    assert left != right or hash(left) == hash(right)


@given(quantities)
def test_rounding_is_away_from_zero_and_by_less_than_a_unit(quantity: Quantity) -> None:
    for rounded, unit in ((quantity.value, 1), (quantity.milli, 1000)):
        exact = Fraction(quantity.nano * unit, NANOS)
        assert abs(rounded) >= abs(exact)
        assert abs(rounded - exact) < 1
        assert rounded * quantity.nano >= 0


@given(st.integers(-(10**12), 10**12), st.integers(1, 10**9))
def test_whole_units_are_those_of_exact_division(amount: int, unit: int) -> None:
    exact = Fraction(amount, unit)
    found = whole(amount, unit)
    assert abs(exact) <= abs(found) < abs(exact) + 1


@given(st.integers(0, MAX_INT64), st.sampled_from(["memory", "cpu", "hugepages-2Mi"]))
def test_an_amount_is_spelled_so_that_it_is_read_back(milli: int, name: str) -> None:
    assert milli_of(format_amount(name, milli)) == milli


_LARGE = st.integers(0, 1000).flatmap(lambda digits: st.integers(-(10**digits), 10**digits))


@given(_LARGE, st.sampled_from(["memory", "cpu"]))
def test_so_is_one_of_any_size(units: int, name: str) -> None:
    text = format_amount(name, units * 1000)
    # ParseQuantity() (apimachinery resource/quantity.go) caps texts with a binary suffix alone.
    is_capped = text.endswith("i") and abs(units) > MAX_INT64
    expected = (MAX_INT64 if units > 0 else -MAX_INT64) if is_capped else units
    assert milli_of(text) == expected * 1000


@given(_LARGE)
def test_any_amount_has_a_short_text(amount: int) -> None:
    for formatter in (format_bytes, format_exact_bytes, scientific):
        assert len(formatter(amount)) < 60
    mantissa, _, exponent = scientific(amount).replace("−", "-").partition("e")
    about = Fraction(mantissa) * Fraction(10) ** int(exponent)
    assert abs(about - amount) <= abs(amount) * Fraction(1, 1000)


@given(st.text("0123456789-+.eEinumkKMGTP", max_size=9) | st.text())
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    try:
        assert Quantity.parse(text).canonical
    except InputError as refused:
        hint = refused.hint
        assert hint is not None
