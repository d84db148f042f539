"""Push and pull, wherever the two models are (field cases WS-07, WS-08, WS-14, WS-16, PH-01)."""

import threading
import types

import pytest
import torch
from torch import nn

from weaverl.errors import FencedError, UsageError, WeightSyncError
from weaverl.runtime.residency import Residency
from weaverl.runtime.weights import Weights, model_tensors
from weaverl.sync.local import LocalSync


class Model(nn.Module):
    def __init__(self, tied, fill=0.0, dtype=torch.float32):
        super().__init__()
        self.embed = nn.Embedding(4, 3)
        self.head = nn.Linear(3, 4, bias=False)
        self.register_buffer("count", torch.tensor(int(fill)))
        self.register_buffer("rope", torch.full((2,), fill), persistent=False)
        if tied:
            self.head.weight = self.embed.weight
        for parameter in self.parameters():
            nn.init.constant_(parameter, fill)
        self.to(dtype)


def pair(trainer_residency=None, engine_residency=None, **options):
    strategy = LocalSync()
    return Weights(strategy, trainer_residency, **options), Weights(strategy, engine_residency)


def test_push_and_pull_in_one_process_carry_parameters_and_persistent_buffers():
    trainer, engine = pair()
    source, target = Model(tied=False, fill=2.0), Model(tied=False)
    pushed, pulled = trainer.push(source), engine.pull(target)
    assert (pushed.version, pulled.version, engine.version) == (1, 1, 1)
    assert torch.equal(target.head.weight, source.head.weight)
    assert target.count == 2
    assert target.rope.tolist() == [0.0, 0.0]
    assert target.head.weight.requires_grad


@pytest.mark.parametrize(("from_tied", "to_tied"), [(True, False), (False, True), (True, True)])
def test_tied_and_untied_models_fill_each_other_if_values_are_equal(from_tied, to_tied):
    trainer, engine = pair()
    target = Model(to_tied)
    trainer.push(Model(from_tied, fill=3.0))
    engine.pull(target)
    assert target.embed.weight.unique().tolist() == target.head.weight.unique().tolist() == [3.0]
    assert (target.embed.weight is target.head.weight) == to_tied


def test_differing_head_for_a_tied_engine_is_an_error_and_nothing_is_applied():
    trainer, engine = pair()
    source, target = Model(tied=False, fill=3.0), Model(tied=True, fill=1.0)
    nn.init.constant_(source.head.weight, 4.0)
    trainer.push(source)
    with pytest.raises(WeightSyncError, match=r"tied here, but the sender has different"):
        engine.pull(target)
    assert target.embed.weight.unique().tolist() == [1.0]
    assert engine.version == 0


def test_models_that_are_away_are_read_and_written_in_host_memory():
    source, target = Model(tied=True, fill=5.0), Model(tied=False)
    residencies = [Residency(), Residency()]
    for residency, model in zip(residencies, (source, target), strict=True):
        residency.add(model)
        residency.save()
    trainer, engine = pair(*residencies)
    trainer.push(source)
    engine.pull(target)
    assert not residencies[0].resident
    assert target.embed.weight.untyped_storage().nbytes() == 0
    residencies[1].restore()
    assert target.head.weight.unique().tolist() == [5.0]


def test_cast_is_done_by_the_sender_and_stated():
    trainer, engine = pair(cast_dtype=torch.bfloat16)
    target = Model(tied=False, dtype=torch.bfloat16)
    trainer.push(Model(tied=False, fill=1.0))
    engine.pull(target)
    assert target.embed.weight.dtype == torch.bfloat16
    assert target.embed.weight.unique().tolist() == [1.0]


def test_engine_with_a_wider_dtype_keeps_it_and_gets_the_values_that_were_sent():
    trainer, engine = pair(cast_dtype=torch.bfloat16)
    target = {"w": torch.zeros(2)}
    trainer.push({"w": torch.tensor([1.0, 0.1])})
    engine.pull(target)
    assert target["w"].dtype == torch.float32
    assert target["w"].tolist() == torch.tensor([1.0, 0.1]).bfloat16().tolist()


def test_each_push_that_succeeds_is_told_of():
    reports = []
    weights = Weights(LocalSync(), on_push=reports.append)
    report = weights.push({"w": torch.ones(3)})
    assert reports == [report]
    assert (report.bytes, report.version) == (12, 1)


def test_dtype_that_nobody_cast_is_refused():
    trainer, engine = pair()
    trainer.push(Model(tied=False, fill=1.0))
    with pytest.raises(WeightSyncError, match=r"embed\.weight \(sent float32 \[4, 3\], wanted bfloat16 \[4, 3\]\)"):
        engine.pull(Model(tied=False, dtype=torch.bfloat16))


def test_second_sync_of_doubled_float8_weights_with_scales_gives_exactly_twice():
    trainer, engine = pair()
    weight = torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn)
    source = {"w": weight, "scale": torch.tensor([0.5])}
    target = {"w": torch.zeros(2).to(torch.float8_e4m3fn), "scale": torch.zeros(1)}
    for factor in (1.0, 2.0):
        trainer.push(source | {"scale": source["scale"] * factor})
        engine.pull(target)
        assert (target["w"].float() * target["scale"]).tolist() == [0.5 * factor, 1.0 * factor]


def test_hundred_syncs_leave_the_base_weights_bit_identical():
    trainer, engine = pair(cast_dtype=torch.bfloat16)
    source, target = {"w": torch.randn(64, 64)}, {"w": torch.zeros(64, 64, dtype=torch.bfloat16)}
    before = source["w"].clone()
    for _ in range(100):
        trainer.push(source)
        engine.pull(target)
    assert torch.equal(source["w"], before)
    assert torch.equal(target["w"], before.bfloat16())


def test_failed_push_leaves_the_version_and_the_next_one_works():
    trainer, engine = pair()
    with pytest.raises(WeightSyncError, match="w holds NaN"):
        trainer.push({"w": torch.tensor([float("nan")])})
    assert trainer.version == 0
    trainer.push({"w": torch.ones(1)})
    target = {"w": torch.zeros(1)}
    assert engine.pull(target).version == 1


def test_fenced_sender_stops_before_anything_is_staged_or_sent():
    def fenced():
        raise FencedError("42 has been granted")

    strategy = LocalSync()
    with pytest.raises(FencedError):
        Weights(strategy, check=fenced).push({"w": torch.ones(1)})
    with pytest.raises(WeightSyncError, match="no weights were pushed"):
        Weights(strategy).pull({"w": torch.ones(1)})


def test_receiver_refuses_an_older_version():
    trainer, engine = pair()
    trainer.push({"w": torch.ones(1)}, version=5)
    engine.pull({"w": torch.zeros(1)})
    trainer.push({"w": torch.ones(1)}, version=4)
    with pytest.raises(WeightSyncError, match="version 4 is older than 5"):
        engine.pull({"w": torch.zeros(1)})


def test_engines_and_compiled_models_are_looked_through():
    model = Model(tied=True)
    compiled = nn.Module()
    compiled._orig_mod = model
    names = {"embed.weight", "head.weight", "count"}
    assert model_tensors(types.SimpleNamespace(model=model)).keys() == names
    assert model_tensors(compiled).keys() == names


def test_object_without_named_tensors_is_a_usage_error():
    with pytest.raises(UsageError, match="weights of a int cannot be named"):
        model_tensors(3)


class Sent(LocalSync):
    """Receives in another thread what was sent, as soon as it is there."""

    waits_for_sender = True

    def __init__(self):
        super().__init__()
        self.arrived = threading.Event()

    def send(self, manifest, data):
        super().send(manifest, data)
        self.arrived.set()

    def receive(self, accept):
        assert self.arrived.wait(10)
        return super().receive(accept)


def test_a_version_is_fetched_beside_the_use_of_the_model_and_written_in_by_the_pull():
    strategy = Sent()
    trainer, engine, target = Weights(strategy), Weights(strategy), Model(tied=False)
    engine.fetch(target)
    with pytest.raises(UsageError, match="call pull"):
        engine.fetch(target)
    trainer.push(Model(tied=False, fill=2.0), version=5)
    assert target.head.weight.unique().tolist() == [0.0], "it may be in use"
    assert engine.pull(target, version=5).version == engine.version == 5
    assert target.head.weight.unique().tolist() == [2.0]
    engine.fetch(target)
    assert engine.pull(target).version == 5


def test_another_version_than_the_one_that_is_due_is_refused_and_nothing_is_applied():
    trainer, engine = pair()
    target = Model(tied=False)
    trainer.push(Model(tied=False, fill=2.0), version=2)
    with pytest.raises(WeightSyncError, match="version 2 came where 1 is due: push and pull each in turn"):
        engine.pull(target, version=1)
    assert engine.version == 0 and target.head.weight.unique().tolist() == [0.0]


def test_what_goes_wrong_while_a_version_is_fetched_is_said_by_the_pull():
    strategy = Sent()
    trainer, engine = Weights(strategy), Weights(strategy)
    target = Model(tied=True, fill=1.0)
    engine.fetch(target)
    source = Model(tied=False, fill=3.0)
    nn.init.constant_(source.head.weight, 4.0)
    trainer.push(source)
    with pytest.raises(WeightSyncError, match="tied here"):
        engine.pull(target)


def test_in_one_process_there_is_nothing_to_fetch():
    trainer, engine = pair()
    target = Model(tied=False)
    engine.fetch(target)
    trainer.push(Model(tied=False, fill=2.0))
    assert engine.pull(target, version=1).version == 1
