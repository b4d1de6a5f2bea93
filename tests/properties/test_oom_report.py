"""Whatever is in the kernel's log, it can be read."""

from hypothesis import given
from hypothesis import strategies as st
from tests.builders import oom_reports
from tests.unit.test_oom_report import OF_CGROUP, OF_MACHINE, TOGETHER, log

from memqos.kernel.log import LogRecord, record_of

REAL = [*log(OF_CGROUP), *log(TOGETHER, 120), *log(OF_MACHINE, 140)]
PIECES = st.sampled_from([record.text for record in REAL])
NAMES = st.text(min_size=1, max_size=15)


@given(st.text())
def test_any_text_is_a_record_or_is_not(text: str) -> None:
    record = record_of(text)
    assert record is None or record.sequence >= 0


@given(
    st.lists(
        st.tuples(PIECES | st.text(), st.booleans(), st.integers(1, 3)),
        max_size=60,
    )
)
def test_lines_in_any_order_and_number_make_reports_of_kills_or_none(
    lines: list[tuple[str, bool, int]],
) -> None:
    sequence, records = 0, []
    for text, continues, skip in lines:
        sequence += skip
        records.append(LogRecord(sequence, sequence, text, continues))
    for report in oom_reports(records):
        assert report.victims


@given(st.data())
def test_a_damaged_report_never_makes_up_a_victim(data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(REAL) - 1))
    text = REAL[index].text
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    damaged = text[:start] + data.draw(st.text(max_size=5)) + text[end:]
    records = [*REAL[:index], LogRecord(REAL[index].sequence, 0, damaged), *REAL[index + 1 :]]
    known = {4711, 4712, 812}
    for report in oom_reports(records):
        pids = {victim.pid for victim in report.victims}
        assert pids <= known or "Killed process" in text


@given(NAMES)
def test_a_process_may_be_called_anything(name: str) -> None:
    records = [
        LogRecord(record.sequence, record.at, record.text.replace("worker 1", name))
        for record in REAL
        if "\n" not in name
    ]
    for report in oom_reports(records)[:1]:
        assert [victim.pid for victim in report.victims] == [4711, 4712]
        assert report.victims[0].comm == name
