"""References that replay themselves: what is recorded, what is not, and what a replay that differs does."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import sleep

import pytest
import torch
from torch import Tensor

from grading.oracle.replay import Call, Recording, ReplayDiffers, Replayed, parts_of, replayed


@dataclass
class Model:
    """Doubles its input, slowly; may be off after so many calls, or by chance."""

    seconds: float = 0.03
    calls: int = 0
    drift: float = 0.0

    def __call__(self, x: Tensor) -> Tensor:
        self.calls += 1
        sleep(self.seconds)
        return x * 2 + self.drift * self.calls


@dataclass
class Recorder:
    """Records on a processor what a graph records on a GPU: the work on tensors of its own."""

    off: float = 0.0
    refuses: bool = False
    asked: int = 0
    replays: int = field(default=0)

    def __call__(self, call: Call, inputs: list[Tensor]) -> Recording:
        self.asked += 1
        if self.refuses:
            raise RuntimeError("called a synchronizing CUDA operation")
        answer = [inputs[0] * 2]

        def replay() -> None:
            self.replays += 1
            answer[0].copy_(inputs[0] * 2 + self.off)

        return Recording(inputs, answer, replay)


def made(model: Model, recorder: Recorder, settle: Callable[[], None] = lambda: None) -> Replayed:
    return Replayed(parts_of(model, []), recorder, settle)


def ask(call: Call, count: int) -> list[list[float]]:
    return [call([torch.full((2,), float(n))])[0].tolist() for n in range(count)]


def doubled(count: int) -> list[list[float]]:
    return [[2.0 * n] * 2 for n in range(count)]


def test_a_slow_call_is_recorded_once_and_replayed_and_now_and_then_made_beside_its_replay() -> None:
    model, recorder = Model(), Recorder()
    assert ask(made(model, recorder), 40) == doubled(40)
    assert (recorder.asked, recorder.replays) == (1, 1 + 38)
    assert model.calls == 2 + 1


def test_answers_stay_as_they_were_when_the_next_replay_comes() -> None:
    call = made(Model(), Recorder())
    answers = [call([torch.full((2,), float(n))])[0] for n in range(6)]
    assert [answer.tolist() for answer in answers] == doubled(6)


@pytest.mark.parametrize(
    ("model", "recorder", "settle"),
    [
        (Model(seconds=0.0), Recorder(), lambda: None),
        (Model(), Recorder(refuses=True), lambda: None),
        (Model(), Recorder(off=1.0), lambda: None),
        (Model(seconds=0.021), Recorder(), lambda: sleep(0.03)),
    ],
    ids=["short", "waits for the device", "another answer", "busy device"],
)
def test_what_does_not_pay_or_cannot_be_recorded_is_called_plainly(
    model: Model, recorder: Recorder, settle: Callable[[], None]
) -> None:
    call = made(model, recorder, settle)
    assert ask(call, 20) == doubled(20)
    assert (call.recording, model.calls) == (None, 20)
    assert recorder.asked <= 1


def test_a_replay_that_comes_to_differ_ends_the_oracle() -> None:
    recorder = Recorder()
    call = made(Model(), recorder)
    assert ask(call, 4) == doubled(4)
    recorder.off = 1.0
    with pytest.raises(ReplayDiffers, match="replay 32 of the reference differs"):
        ask(call, 32)


def test_a_reference_that_differs_from_itself_is_called_plainly_from_there_on() -> None:
    model = Model()
    call = made(model, Recorder())
    ask(call, 4)
    model.drift = 0.5
    assert ask(call, 28)[-1] == [54.0 + 0.5 * 3] * 2
    assert call.recording is None


def test_inputs_are_left_alone_and_those_changed_in_place_are_part_of_the_answer() -> None:
    def model(x: Tensor, state: Tensor) -> Tensor:
        state += x
        return x - 1

    given = [torch.ones(2), torch.ones(2)]
    answer = replayed(parts_of(model, [1]), "cpu")(given)
    assert [part.tolist() for part in (*answer, *given)] == [[0, 0], [2, 2], [1, 1], [1, 1]]
