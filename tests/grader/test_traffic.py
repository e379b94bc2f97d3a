"""What calls move, counted from outside: by a driver that counts, by drivers that refuse, and what is made of it."""

from ctypes import ArgumentError, c_void_p, cast
from dataclasses import replace
from math import inf, nan
from time import monotonic, sleep

import msgspec
import pytest

from grading.evidence import Traffic, Window, read_evidence
from grading.verdict import judge
from grading.warden import traffic as module
from grading.warden.grade import Grade
from grading.warden.progress import table
from grading.warden.traffic import Meter, is_counted, measure_traffic
from tests.grader.made import make_evidence, make_pass, make_shape
from tests.grader.support import HERE, TINY, grade_source

pynvml = pytest.importorskip("pynvml", reason="NVML's binding belongs to the grading app")
torch = pytest.importorskip("torch", reason="the stub is PyTorch's")

from grading.worker.session import Session  # noqa: E402

FLUSH, CALL, MHZ, BITS, FLUSH_BYTES = 100e6, 250e6, 1000, 4096, 2**27
FLUSH_S, CALL_S = 2e-4, 5e-4
# A busy processor sleeps longer than it is told to.
ROUGHLY = 0.15
PEAK = MHZ * 1e6 * 2 * BITS / 8


class Driver:
    """NVML's own forms over a device that counts bytes; its samples may be ``lag_s`` old."""

    NVMLError, NVML_SUCCESS, NVML_CLOCK_MEM = pynvml.NVMLError, 0, 2
    NVML_GPM_METRIC_DRAM_BW_UTIL, NVML_GPM_METRIC_ANY_TENSOR_UTIL, NVML_GPM_METRIC_SM_UTIL = 10, 5, 2
    NVML_GPM_METRICS_GET_VERSION = 1
    c_nvmlGpmMetricsGet_t = pynvml.c_nvmlGpmMetricsGet_t

    def __init__(
        self, refuses: str = "", metric_status: int = 0, bits: int = BITS, scale: float = 1.0, lag_s: float = 0.0
    ) -> None:
        self.refuses, self.metric_status, self.bits, self.scale, self.lag_s = refuses, metric_status, bits, scale, lag_s
        self.runs: list[tuple[float, float, float]] = []
        self.samples, self.made, self.freed = {}, 0, 0

    def run(self, moved: float, seconds: float) -> None:
        """Move so many bytes in so many seconds."""
        began = monotonic()
        self.runs.append((began, began + max(seconds, 1e-9), moved))
        sleep(seconds)

    def moved(self, now: float) -> float:
        """Return what the memory has seen by then."""
        return sum(moved * min(max((now - a) / (b - a), 0.0), 1.0) for a, b, moved in self.runs)

    def refuse(self, name: str) -> None:
        if name == self.refuses:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)

    def nvmlGpmQueryDeviceSupport(self, handle):
        self.refuse("support")
        found = pynvml.c_nvmlGpmSupport_t()
        found.isSupportedDevice = self.refuses != "device"
        if self.refuses == "form":
            raise ArgumentError("argument 1: wrong type")
        return found

    def nvmlDeviceGetMigMode(self, handle):
        if self.refuses != "divided":
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [1, 1]

    def nvmlDeviceGetMaxClockInfo(self, handle, kind):
        return MHZ

    def nvmlDeviceGetMemoryBusWidth(self, handle):
        self.refuse("bus")
        return self.bits

    def nvmlGpmSampleAlloc(self):
        self.made += 1
        return cast(c_void_p(self.made), pynvml.c_nvmlGpmSample_t)

    def nvmlGpmSampleGet(self, handle, sample):
        self.refuse("sample")
        now = monotonic() - self.lag_s
        self.samples[cast(sample, c_void_p).value] = (now, self.moved(now))
        return sample

    def nvmlGpmSampleFree(self, sample):
        self.freed += 1

    def nvmlGpmMetricsGet(self, asked):
        self.refuse("metrics")
        (began, before), (ended, after) = (
            self.samples[cast(sample, c_void_p).value] for sample in (asked.sample1, asked.sample2)
        )
        shares = {10: 100 * (after - before) / (ended - began) / PEAK, 5: 40.0, 2: 90.0}
        for place in range(asked.numMetrics):
            row = asked.metrics[place]
            row.value, row.nvmlReturn = shares[row.metricId] * self.scale, self.metric_status
        return asked


def counted(monkeypatch, driver: Driver, *, host_s: float = 0.0, is_instant: bool = False, **changes) -> Traffic:
    """Count calls on a driver; one takes ``host_s`` longer than the clocks before say."""
    monkeypatch.setattr(module, "open_driver", lambda index: (driver, "handle"))
    order: list[bool] = []

    def repeat(count: int, is_noop: bool) -> None:
        order.append(is_noop)
        seconds = 0 if is_instant else count * (FLUSH_S + (0 if is_noop else CALL_S + host_s))
        driver.run(count * (FLUSH + (0 if is_noop else CALL)), seconds)

    given = {"call_s": CALL_S, "flush_bytes": FLUSH_BYTES, "least_bytes": 200e6} | changes
    found = measure_traffic(Meter("cuda:1"), repeat, **given)
    assert order == sorted(order, reverse=True)
    assert driver.freed == driver.made
    return found


def test_a_call_moves_what_its_window_holds_beyond_the_flushes(monkeypatch):
    driver = Driver()
    found = counted(monkeypatch, driver)
    assert found.dram_bytes == pytest.approx(CALL, rel=ROUGHLY)
    assert (found.peak_bytes_per_s, found.unread) == (PEAK, None) and driver.freed >= 4
    assert found.model.calls < found.noop.calls and found.model.tensor_util == 40.0
    assert found.flush_share == pytest.approx(FLUSH / FLUSH_BYTES, rel=ROUGHLY)


def test_samples_that_are_older_than_they_seem_do_not_blur_the_count(monkeypatch):
    # On an H200 they were up to 0.2 s old: the same flushes counted as 0.61 to 1.0 of what they write.
    found = counted(monkeypatch, Driver(lag_s=0.2))
    assert found.flush_share == pytest.approx(FLUSH / FLUSH_BYTES, rel=ROUGHLY)
    assert found.dram_bytes == pytest.approx(CALL, rel=ROUGHLY)


def test_a_window_is_as_long_as_it_should_whatever_the_host_adds_to_a_call(monkeypatch):
    found = counted(monkeypatch, Driver(), host_s=0.02)
    assert 0.55 < found.noop.seconds < 3.0 and 0.55 < found.model.seconds < 3.0
    assert found.dram_bytes == pytest.approx(CALL, rel=ROUGHLY)


@pytest.mark.parametrize("refuses", ["divided", "support", "form", "device", "bus", "sample", "metrics"])
def test_what_the_driver_refuses_is_recorded_and_nothing_is_claimed(monkeypatch, refuses):
    found = counted(monkeypatch, Driver(refuses))
    assert found.unread and found.dram_bytes is None and found.noop is None


def test_a_metric_that_is_not_counted_and_a_window_that_is_too_short_are_named(monkeypatch):
    assert "metric 10" in counted(monkeypatch, Driver(metric_status=3)).unread
    assert "too short" in counted(monkeypatch, Driver(), is_instant=True).unread
    assert counted(monkeypatch, Driver(bits=0)).unread == "the driver names no memory clock or no bus"
    assert counted(monkeypatch, Driver(), call_s=0.3).unread == "a call takes too long"
    assert counted(monkeypatch, Driver(), flush_bytes=0).unread == "nothing is flushed"
    monkeypatch.setattr(module, "open_driver", lambda index: None)
    assert Meter("cuda:0").refusal == "NVML does not answer"


@pytest.mark.parametrize("scale", [nan, inf, -1.0])
def test_a_number_that_is_none_is_not_taken_for_a_reading(monkeypatch, scale):
    found = counted(monkeypatch, Driver(scale=scale))
    assert "need a finite number >= 0" in found.unread and found.dram_bytes is None
    assert msgspec.json.decode(msgspec.json.encode(found), type=Traffic) == found


@pytest.mark.parametrize("scale", [0.0, 0.1, 10.0])
def test_counters_that_miss_a_known_flush_are_believed_in_nothing(monkeypatch, scale):
    found = counted(monkeypatch, Driver(scale=scale))
    assert found.unread is None and found.noop.calls and found.dram_bytes is None
    assert found.flush_share == pytest.approx(scale * FLUSH / FLUSH_BYTES, rel=ROUGHLY)


def test_calls_that_fail_in_a_row_are_not_counted(monkeypatch):
    session = Session(None, None, "cpu")

    def tire(x):
        raise RuntimeError("tired")

    session._model, session._inputs = tire, [[torch.zeros(2)]]
    answer = session.repeat({"slot": 0, "count": 3, "flush_bytes": 64, "noop": False})
    assert answer == {"event": "repeated", "error": "RuntimeError: tired"}
    monkeypatch.setattr(module, "open_driver", lambda index: (Driver(), "handle"))

    def fail(count: int, is_noop: bool) -> None:
        raise LookupError(answer["error"])

    assert measure_traffic(Meter("cuda:0"), fail, 1e-4, 2**27, None).unread == "RuntimeError: tired"


def test_what_the_calls_themselves_raise_is_not_swallowed(monkeypatch):
    monkeypatch.setattr(module, "open_driver", lambda index: (Driver(), "handle"))

    def die(count: int, is_noop: bool) -> None:
        raise RuntimeError("the worker is gone")

    with pytest.raises(RuntimeError, match="gone"):
        measure_traffic(Meter("cuda:0"), die, 1e-4, 2**27, None)


def test_four_shapes_at_most_are_counted():
    assert [index for index in range(4) if is_counted(index, 4)] == [0, 1, 2, 3]
    assert [index for index in range(5) if is_counted(index, 5)] == [0, 2, 4]
    assert [index for index in range(18) if is_counted(index, 18)] == [0, 5, 10, 15]


def test_a_call_that_moves_less_than_it_must_is_noted():
    def window(share: float) -> Window:
        return Window(calls=1000, seconds=0.5, dram_util=share, tensor_util=1.0, sm_util=90.0)

    def verdict_of(share: float, least: float | None) -> list[str]:
        seen = Traffic(
            noop=window(6.0), model=window(share), peak_bytes_per_s=4e12, flush_bytes=FLUSH_BYTES, least_bytes=least
        )
        shape = msgspec.structs.replace(make_shape(), traffic=seen)
        verdict = judge(make_evidence(make_pass(1, shape)))
        return [verdict.word, *(rule.rule for rule in verdict.fired)]

    # Half a percent of the window's 2 TB is 10 MB a call; 4 % are 80 MB.
    assert verdict_of(6.5, 100e6) == ["verified_note", "P17.traffic"]
    assert verdict_of(10.0, 100e6) == verdict_of(6.5, 12e6) == verdict_of(6.5, None) == ["verified"]
    assert verdict_of(5.0, 100e6) == ["verified_note", "P17.traffic"]


def test_the_table_says_what_a_call_moves_or_why_that_is_not_known():
    window = Window(calls=1000, seconds=0.5, dram_util=10.0, tensor_util=31.0, sm_util=90.0)
    both = msgspec.structs.replace(window, dram_util=20.0)
    seen = Traffic(noop=window, model=both, peak_bytes_per_s=2e12, flush_bytes=FLUSH_BYTES, least_bytes=90e6)
    missed = msgspec.structs.replace(seen, flush_bytes=FLUSH_BYTES * 10)
    traffic = [seen, missed, Traffic(unread="tired"), Traffic(unread="tired"), None]
    evidence = make_evidence(make_pass(1, *(make_shape(traffic=each) for each in traffic)))
    lines = table(Grade(evidence, judge(evidence), []), [None] * len(traffic)).splitlines()
    assert [line for line in lines if line.startswith("DRAM")] == [
        "DRAM a call, pass 1 shape 0: 100.0 MB of 90.0 that none can avoid, tensor cores 31 % of the window",
        "DRAM a call, pass 1 shape 1: not counted: a flush counts as another amount than it writes",
        "DRAM a call, pass 1 shape 2, 3: not counted: tired",
    ]


def test_a_full_grade_on_a_processor_says_that_nothing_is_counted():
    source = (HERE / "honest" / "h08_slow_first_call.py").read_text()
    done = grade_source("S", source, effort=replace(TINY, has_census=True))
    seen = [shape.traffic for shape in done.evidence.passes[-1].shapes]
    assert seen and {traffic.unread for traffic in seen if traffic} == {"a processor has no such counters"}
    assert judge(read_evidence(msgspec.json.encode(done.evidence))) == done.verdict
    assert "not counted: a processor has no such counters" in table(done, [None] * len(seen))
