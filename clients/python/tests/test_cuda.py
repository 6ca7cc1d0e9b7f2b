"""What is trained and published on a GPU: the same numbers as on a CPU, and the same bytes. Skipped without CUDA."""

from __future__ import annotations

import copy
import hashlib
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collectives import Member, Plane, as_tensors, same
from conftest import Serve
from test_learning import DEFAULT, example

import headway
from headway import distill, routing
from headway import tensors as arrays

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU", allow_module_level=True)

import test_distill  # noqa: E402
import test_masks  # noqa: E402
import test_routing  # noqa: E402
from test_distributed import DOCUMENT, Program, Shim, expected  # noqa: E402
from test_distributed import model as checkpoint  # noqa: E402, F401

import headway.torch as adapter  # noqa: E402
from headway.torch import Sender  # noqa: E402

Start = Callable[..., Serve]
GPU = torch.device("cuda")
#: Single precision on both sides, with sums in another order.
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
#: Half precision keeps eight bits of a number.
HALF = {"rtol": 3e-2, "atol": 3e-2}


def of_every_type() -> dict[str, Any]:
    """Tensors on the GPU of all types that are stored, with strides of their own, none, and one number alone."""
    torch.manual_seed(8)
    made = {str(t).removeprefix("torch."): torch.randn(37, 5, device=GPU).to(t) for t in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    )}  # fmt: skip
    wide = torch.randn(64, 33, device=GPU, dtype=torch.bfloat16)
    return made | {
        "bytes": torch.randint(0, 256, (9,), device=GPU, dtype=torch.uint8), "flags": torch.rand(7, device=GPU) > 0.5,
        "turned": wide.T, "every_other": wide[::2, 1:], "none": torch.empty(0, 3, device=GPU),
        "scalar": torch.tensor(2.5, device=GPU), "parameter": torch.nn.Parameter(torch.randn(3, device=GPU)),
    }  # fmt: skip


def raw(tensor: Any) -> bytes:
    """The bytes of a tensor, by torch alone."""
    host = tensor.detach().cpu().contiguous()
    return bytes(host.reshape(-1).view(torch.uint8).numpy().tobytes())


class TestNumbers:
    """Losses and gradients on the GPU are those of the CPU."""

    @pytest.mark.parametrize("masked", [False, True], ids=["whole", "cut"])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
    def test_logprobs(self, masked: bool, dtype: Any) -> None:
        """Of a batch, with the ids that a cut has kept and without, also of logits in half precision."""
        batch, _, logits, _ = test_masks.everything(test_masks.top_p)
        mask, found = batch.channel("sampling_mask") if masked else None, []
        for device in (torch.device("cpu"), GPU):
            table = torch.tensor(logits, device=device).to(dtype).requires_grad_()
            rows = adapter.padded(batch, device=device)
            now = adapter.logprobs(
                lambda tokens, table=table: table[tokens % len(table)], rows, temperature=0.7, mask=mask
            )
            ratio = (now - rows["logprobs"])[rows["loss_mask"].bool()].exp()
            loss = -(ratio * rows["advantages"][rows["loss_mask"].bool()]).mean()
            loss.backward()
            found.append((now.detach().cpu(), loss.detach().cpu(), table.grad.cpu()))
            batch.compare(now)
        for cpu, gpu in zip(*found, strict=True):
            torch.testing.assert_close(gpu, cpu, **(CLOSE if dtype == torch.float32 else HALF))

    @pytest.mark.parametrize("loss", ["forward", "reverse", "sampled"])
    def test_distillation(self, loss: str) -> None:
        """The three divergences from a teacher, at each token, and their gradients."""
        batch, found = test_distill.everything(3, absent=(4,)), []
        for device in (torch.device("cpu"), GPU):
            teacher, rows = adapter.teacher(batch, device=device), adapter.padded(batch, device=device)
            table = torch.tensor(test_distill.NOW, device=device, requires_grad=True)
            logits = table[rows["tokens"] % len(table)]
            if loss == "sampled":
                now = adapter.logprobs(lambda _, logits=logits: logits, rows)
                each = distill.sampled_kl(now, teacher.sampled, rows["logprobs"], teacher.present)
            else:
                each = (distill.forward_kl if loss == "forward" else distill.reverse_kl)(logits, teacher)
            each.sum().backward()
            found.append((each.detach().cpu(), table.grad.cpu()))
        for cpu, gpu in zip(*found, strict=True):
            torch.testing.assert_close(gpu, cpu, **CLOSE)
        assert found[0][0].abs().sum() > 0.1

    def test_routing(self) -> None:
        """Experts that are replayed on the GPU give the CPU's outcome and gradients, from rows on either device."""
        model = test_routing.Model()
        tokens = test_routing.tokens()
        rows = test_routing.others(test_routing.own(model, lambda: model(tokens)))
        moved, found = copy.deepcopy(model).to(GPU), []
        for made, given, there in (
            (model, rows, tokens),
            (moved, rows, tokens.to(GPU)),
            (moved, rows.to(GPU), tokens.to(GPU)),
        ):
            made.zero_grad()
            with routing.replay(made, given):
                out = made(there)
            out.square().sum().backward()
            found.append((out.detach().cpu(), {n: p.grad.cpu() for n, p in made.named_parameters()}))
        for other in found[1:]:
            torch.testing.assert_close(other, found[0], **CLOSE)

    @pytest.mark.parametrize("half", [False, True], ids=["single", "half"])
    def test_a_train_step(self, serve: Start, half: bool) -> None:
        """Of a real batch: loss, the norm of the gradient and the weights after the step, with autocast too."""
        train, server = example("torch_grpo"), serve("--steps", "3")
        with headway.connect(server.url) as hw:
            weights, batch = hw.load(), hw.lease()
            prompt, found = hw.config["environment"]["letters_max"] + 2, []
            for device in ("cpu", "cuda"):
                policy = train.policy_of(weights, hw.config)
                policy.load_state_dict(adapter.tensors(weights))
                optimizer = torch.optim.SGD(policy.to(device).parameters(), lr=0.1)
                with torch.autocast(device, torch.bfloat16, enabled=half and device == "cuda"):
                    metrics = train.train_step(policy, optimizer, batch, hw.config["trainer"], prompt)
                found.append((metrics, {n: p.detach().cpu() for n, p in policy.named_parameters()}))
            assert batch._agreement is not None
            assert batch._agreement.difference < (0.05 if half else 1e-4), batch._agreement
        (cpu, before), (gpu, after) = found
        assert gpu["grad_norm"] == pytest.approx(cpu["grad_norm"], rel=0.1 if half else 1e-3)
        assert gpu["loss"] == pytest.approx(cpu["loss"], abs=1e-2 if half else 1e-5)
        for name, tensor in before.items():
            torch.testing.assert_close(after[name], tensor, **(HALF if half else CLOSE))


class TestPublishing:
    """Weights that lie on the GPU."""

    def test_bytes(self) -> None:
        """Every type's, as a file and back."""
        state = of_every_type()
        content = b"".join(arrays.File("model.safetensors", state).chunks())
        found, _ = arrays.decode(content, "it")
        assert sorted(found) == sorted(state)
        for name, tensor in state.items():
            assert found[name].tobytes() == raw(tensor), name
            back = adapter.from_numpy(found[name], GPU)
            assert back.device.type == "cuda"
            assert (back.dtype, back.shape, raw(back)) == (tensor.dtype, tensor.shape, raw(tensor)), name

    def test_a_version(self, serve: Start) -> None:
        """What a GPU's tensors were is what the control plane has, weights and optimizer, right after a step."""
        server = serve("--steps", "3")
        with headway.connect(server.url) as hw:
            weights = hw.load()
            policy = example("torch_grpo").policy_of(weights, hw.config)
            policy.load_state_dict(adapter.tensors(weights))
            optimizer = torch.optim.Adam(policy.to(GPU).parameters(), lr=0.01)
            for batch in hw.batches():
                for parameter in policy.parameters():
                    parameter.grad = torch.randn_like(parameter)
                optimizer.step()
                state = adapter.optimizer_state(optimizer, policy)
                wanted = {name: raw(tensor) for name, tensor in policy.state_dict().items()}
                version = hw.publish(batch, policy.state_dict(), optimizer=state)
                found = hw.weights(version)
                assert {name: array.tobytes() for name, array in found.items()} == wanted
                kept = {k: v.tobytes() for k, v in hw.optimizer(version).items()}
                assert kept == {k: v.tobytes() for k, v in state.items()}
                other = torch.optim.Adam(policy.parameters(), lr=0.01)
                assert adapter.load_optimizer(other, policy, hw.optimizer(version))
                for parameter in policy.parameters():
                    assert torch.equal(other.state[parameter]["exp_avg"], optimizer.state[parameter]["exp_avg"])

    def test_not_finite(self) -> None:
        """One number of a GPU's tensor that is not finite is found, by either way of publishing."""
        bad = torch.zeros(1000, device=GPU, dtype=torch.bfloat16)
        bad[777] = float("nan")
        with pytest.raises(headway.Invalid, match="777"):
            arrays.check_finite({"w": adapter.to_numpy(bad)}, "model")
        from headway import collective

        with pytest.raises(headway.Invalid, match="777"):
            collective.checked({"w": bad}, "nccl")


class TestProgram:
    """examples/torch_grpo on the GPU, against a real control plane."""

    def test_a_few_steps(self, serve: Start, capsys: pytest.CaptureFixture[str]) -> None:
        server = serve("--steps", "6")
        example("torch_grpo").main(["--url", server.url, "--evaluate-every", "3", "--device", "cuda"])
        assert "version 3: held-out accuracy" in capsys.readouterr().err, "".join(server.output)

    def test_goes_on(self, serve: Start) -> None:
        """A model in bfloat16 on the GPU, whose log-probs agree with the engine's to its rounding, and its weights."""
        train, server = example("torch_grpo"), serve("--steps", "4", queue__policy="block")
        with headway.connect(server.url) as hw:
            weights, prompt, seen = hw.load(), hw.config["environment"]["letters_max"] + 2, 0
            for batch in hw.batches():
                policy = train.policy_of(weights, hw.config)
                policy.load_state_dict(adapter.tensors(weights))
                narrow = policy.to(GPU, torch.bfloat16)
                rows = adapter.padded(batch, device=GPU)
                found = batch.compare(train.log_probs(narrow, rows, prompt))
                assert found.difference < 0.05, found
                seen += 1
                state = {name: p.detach().float() for name, p in narrow.named_parameters()}
                version = hw.publish(batch, state)
                weights = hw.weights(version)
                assert all(weights[name].tobytes() == raw(tensor) for name, tensor in state.items())
        assert seen == 4

    @pytest.mark.learning
    def test_learns(self, serve: Start) -> None:
        """To the end of its 600 steps."""
        server = serve(**DEFAULT)
        assert example("torch_grpo").main(["--url", server.url, "--device", "cuda"]) >= 0.95


#: An engine of another process on the same GPU. NCCL refuses two ranks on one, but where they seem to be on two hosts.
ANOTHER_HOST = {"NCCL_HOSTID": "an-engine", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
RECEIVER = """
import hashlib, json, sys, torch
from hf_shim import groups

group, port = sys.argv[1], int(sys.argv[2])
member = groups.Groups()
member.join({"group_name": group, "backend": "nccl", "master_address": "127.0.0.1", "master_port": port,
             "rank_offset": 1, "world_size": 2})
print("joined", flush=True)

class Anything:
    device = torch.device("cuda")
    architecture = type("Architecture", (), {"tied": False})
    def check(self, name, shape):
        pass

for line in sys.stdin:
    words = json.loads(line)
    names, dtypes, shapes = zip(*((w["name"], w["dtype"], w["shape"]) for w in words))
    found = member.receive({"group_name": group, "names": names, "dtypes": dtypes, "shapes": shapes}, Anything())
    torch.cuda.synchronize()
    said = {n: hashlib.sha256(t.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
            for n, t in found.items()}
    print(json.dumps(said), flush=True)
"""


@pytest.fixture
def another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process's side of it."""
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("NCCL_IB_DISABLE", "1")
    monkeypatch.setenv("NCCL_HOSTID", "a-trainer")


def receiver(plane: Plane, engine: str, group: str, **environment: str) -> Program:
    """An engine in a process of its own, joined."""
    seq, port = plane.meet(engine, group)
    made = Program("-c", RECEIVER, group, str(port), **(ANOTHER_HOST | environment))
    assert made.line() == "joined\n"
    assert "error" not in plane.end(seq)
    return made


def sent(plane: Plane, engine: Program, name: str, group: str) -> None:
    """It is sent version 1."""
    held = plane.do("hold", name, 1)
    seq = plane.give("send", name, 1, group=group)
    engine.say(json.dumps(held["tensors"]))
    engine.line()
    assert "error" not in plane.end(seq)


class TestSending:
    """Weights of a GPU to engines, by a collective."""

    def test_gloo(self, plane: Plane) -> None:
        """It copies them to the host: what engines receive is what they were, and the digest is that of a CPU's."""
        from collectives import state

        given = {n: t.to(GPU) for n, t in as_tensors(state()).items()}
        with Sender(plane.url) as sender:
            member = Member(plane, "engine-0", "g0")
            sender.hold(1, given)
            same(member.receive(1), {n: t.cpu() for n, t in given.items()})
            on_gpu = plane.do("hold", "engine-0", 1)["digest"]
            sender.hold(2, {n: t.cpu() for n, t in given.items()})
            assert plane.do("hold", "engine-0", 2)["digest"] == on_gpu

    def test_the_copy_is_of_the_moment(self, plane: Plane) -> None:
        """What the optimizer changes on the GPU right after a hold is not sent."""
        for backend in ("gloo", "nccl"):
            with Sender(plane.url, backend=backend) as sender:
                weight = torch.zeros(1 << 24, device=GPU)
                for version in range(1, 4):
                    weight.fill_(float(version))
                    sender.hold(version, {"w": weight})
                    weight.fill_(-1.0)
                    held = sender._shelf.find(version)
                    assert held is not None
                    assert bool((held.tensors["w"] == version).all()), (backend, version)

    @pytest.mark.usefixtures("another_host")
    def test_nccl(self, plane: Plane) -> None:
        """Two versions, every type, byte for byte; 8-bit floats too, and more tensors than are under way at once."""
        state = {name: tensor for name, tensor in of_every_type().items() if name != "int16"}
        state |= {f"layers.{i}": torch.randn(129, 65, device=GPU, dtype=torch.bfloat16) for i in range(40)}
        state |= {
            "fp8": torch.randn(50, 4, device=GPU).to(torch.float8_e4m3fn),
            "large": torch.randn(1 << 22, device=GPU),
        }
        with Sender(plane.url, backend="nccl") as sender:
            engine = receiver(plane, "engine-0", "g0")
            try:
                for version in (1, 2):
                    state = {
                        n: t.detach() if t.dtype == torch.float8_e4m3fn else t.detach().clone()
                        for n, t in state.items()
                    }
                    state["large"] += version
                    sender.hold(version, state)
                    held = plane.do("hold", "engine-0", version)
                    assert "error" not in held, held
                    seq = plane.give("send", "engine-0", version, group="g0")
                    engine.say(json.dumps(held["tensors"]))
                    found = json.loads(engine.line())
                    assert "error" not in plane.end(seq)
                    assert found == {n: hashlib.sha256(raw(t)).hexdigest() for n, t in state.items()}
            finally:
                engine.kill()

    @pytest.mark.usefixtures("another_host")
    @pytest.mark.parametrize("before", [True, False], ids=["before-the-first", "after-the-first"])
    def test_nccl_and_an_engine_that_is_killed(self, plane: Plane, before: bool) -> None:
        """What it is sent ends with an error, within the timeout; this process lives, and sends to another."""
        with Sender(plane.url, backend="nccl", timeout_s=25) as sender:
            engine = receiver(plane, "engine-0", "g0")
            sender.hold(1, {"w": torch.ones(1 << 24, device=GPU)})
            if not before:
                sent(plane, engine, "engine-0", "g0")
            assert "error" not in plane.do("hold", "engine-0", 1)
            engine.kill()
            assert "error" in plane.do("send", "engine-0", 1, group="g0")
            torch.cuda.synchronize()
            assert float(torch.ones(1000, device=GPU).sum()) == 1000
            engine = receiver(plane, "engine-1", "g1")
            try:
                sent(plane, engine, "engine-1", "g1")
            finally:
                engine.kill()

    @pytest.mark.usefixtures("another_host")
    def test_nccl_and_an_engine_that_takes_nothing(self, plane: Plane) -> None:
        """The sender gives it up after its timeout, and the GPU is free of it."""
        with Sender(plane.url, backend="nccl", timeout_s=25) as sender:
            engine = receiver(plane, "engine-0", "g0")
            try:
                sender.hold(1, {"w": torch.ones(1 << 24, device=GPU)})
                assert "error" not in plane.do("hold", "engine-0", 1)
                assert "took nothing" in plane.do("send", "engine-0", 1, group="g0")["error"]
                torch.cuda.synchronize()
                assert float(torch.ones(1000, device=GPU).sum()) == 1000
            finally:
                engine.kill()

    @pytest.mark.usefixtures("another_host")
    def test_nccl_refuses_one_gpu_for_two(self, plane: Plane) -> None:
        """Of one host: the engine's command ends with an error, and the trainer lives."""
        with Sender(plane.url, backend="nccl", timeout_s=10) as sender:
            engine = receiver(plane, "engine-0", "g0", NCCL_HOSTID="a-trainer")
            try:
                sender.hold(1, {"w": torch.ones(8, device=GPU)})
                held = plane.do("hold", "engine-0", 1)
                engine.say(json.dumps(held["tensors"]))
                said = plane.do("send", "engine-0", 1, group="g0")
                assert "error" in said
                print(said["error"])
                assert float(torch.ones(1000, device=GPU).sum()) == 1000
            finally:
                engine.kill()


TRAINER = """
import sys, numpy as np, torch
import headway, headway.torch as adapter

url, directory, backend = sys.argv[1:]
hw = headway.connect(url)
with adapter.Sender(url, backend=backend) as sender:
    weights = adapter.tensors(hw.load(), "cuda")
    for batch in hw.batches():
        if not sys.stdin.readline():
            break
        draw = np.random.default_rng(batch.version)
        for tensor in weights.values():
            tensor += torch.from_numpy((0.02 * draw.standard_normal(tensor.shape)).astype(np.float32)).cuda()
        version = sender.publish(hw, batch, weights, checkpoint_every=2)
        np.savez(f"{directory}/{version}.npz", **{n: adapter.to_numpy(t) for n, t in weights.items()})
        print(version, flush=True)
"""


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_a_run_by_collectives(serve: Start, checkpoint: Path, tmp_path: Path, backend: str) -> None:  # noqa: F811
    """A trainer's GPU to a server's: it serves each version's log-probs, also after it was killed."""
    devices = ("--device", "cuda") if backend == "nccl" else ()
    shim, stop = Shim(checkpoint, *devices, **ANOTHER_HOST), threading.Event()
    document = tmp_path / "run.yaml"
    url = f"http://127.0.0.1:{shim.port}"
    engine = f'  - {{kind: sglang, name: e0, url: "{url}", slots: 8, weights: distributed}}'
    document.write_text(DOCUMENT.format(model=checkpoint, engines=engine))
    server = serve(str(document))

    @headway.environment("words")
    def play(task: headway.Task, sample: Any) -> headway.Result:
        said = sample([1, 6 + task.prompt % 50, 7], max_tokens=8)
        return headway.Result(float(said.tokens[0] % 2))

    work = {"stop": stop, "grace_s": 0.0}
    threading.Thread(target=headway.work, args=(server.url, play, 16), kwargs=work, daemon=True).start()
    sides = ANOTHER_HOST | {"NCCL_HOSTID": "a-trainer"}
    trainer = Program("-c", TRAINER, server.url, str(tmp_path), backend, **sides)
    tokens, pause = [1, 17, 7, 9, 33, 60, 5, 21], threading.Event()
    try:
        for version in (1, 2, 3, 4):
            trainer.say()
            assert int(trainer.line()) == version, "".join(server.output)
            with np.load(tmp_path / f"{version}.npz") as found:
                wanted = expected(checkpoint, dict(found), tokens)
            for _ in range(600):
                if shim.label().startswith(f"v{version}-"):
                    break
                pause.wait(0.05)
            else:
                pytest.fail(f"version {version} is not served: {shim.label()}\n{''.join(server.output)}")
            assert shim.logprobs(tokens) == pytest.approx(wanted, abs=1e-3)
            if version == 2:
                shim.kill()
                shim.start()
    finally:
        stop.set()
        trainer.kill()
        shim.kill()
