"""An agent's state and its file.

A file is not trusted. Nothing in it can run or import code, and before a number of it is loaded,
its names, shapes and types are compared with a skeleton: the networks that its config asks for,
built on PyTorch's meta device, which takes no memory.
"""

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from t3d.base import files
from t3d.base.errors import BadInput, T3DError
from t3d.base.machine import usable_device
from t3d.base.numbers import Array
from t3d.base.observation import Layout
from t3d.base.randomness import generator, generator_state, set_generator_state
from t3d.base.text import blame, one_line
from t3d.config import Config
from t3d.learn.networks import find_body
from t3d.learn.perception import Perception
from t3d.learn.replay.sampling import Sampler

_SAMPLER = "sampler."
_ADAM = ("step", "exp_avg", "exp_avg_sq")
_DTYPES = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64, "I32": torch.int32}
_DTYPES |= {"U8": torch.uint8, "BOOL": torch.bool}
_DTYPES |= {"F16": torch.float16, "BF16": torch.bfloat16, "I16": torch.int16, "I8": torch.int8}
Description = dict[str, tuple[tuple[int, ...], torch.dtype | None]]  # shapes and types by name
# Every hidden layer and every image brings many more arrays than this to a file.
_ARRAYS_PER_LAYER = 10

if TYPE_CHECKING:
    Loader = classmethod
else:

    class Loader(classmethod):
        """A class method that makes an agent; called on an agent, it changes that one instead."""

        def __get__(self, agent, kind=None):
            return super().__get__(None, kind) if agent is None else agent.restore


class Saved:
    """The part of an agent that knows its state. See agent.py for the rest."""

    config: Config
    built_with: Config
    layout: Layout
    env_name: str | None
    low: Tensor
    high: Tensor
    dtype: torch.dtype
    updates: int
    perception: Perception
    sampler: Sampler
    streams: dict[str, np.random.Generator]
    optimizers: dict[str, torch.optim.Adam]
    actor: Any
    critic: Any

    @property
    def networks(self) -> dict[str, nn.Module]:
        """All networks by the names of their attributes: what is saved, loaded and traced."""
        return {name: each for name, each in vars(self).items() if isinstance(each, nn.Module)}

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that the next update depends on, except the memory: flat, names to tensors."""
        state: dict[str, Tensor] = {}
        for name, network in self.networks.items():
            state |= {f"{name}.{key}": value for key, value in network.state_dict().items()}
        state |= self._adam_moments()
        if self.config.normalize_observations:
            statistics = self.perception.normalizer.state_dict()
            state |= {f"normalizer.{name}": value for name, value in statistics.items()}
        for name, array in self.sampler.state_dict().items():
            state[f"{_SAMPLER}{name}"] = torch.from_numpy(np.asarray(array))
        state["updates"] = torch.tensor(self.updates)
        for name, stream in self.streams.items():
            words = generator_state(stream).view(np.int64)
            state[f"generator.{name}"] = torch.from_numpy(words)
        rows_first = torch.contiguous_format  # the only order that a file can have
        return {k: tensor.detach().clone(memory_format=rows_first) for k, tensor in state.items()}

    def _adam_moments(self) -> dict[str, Tensor]:
        """Adam's own tensors, not copies of them."""
        return {
            f"{name}_optimizer.{key}.{moment}": adam.state[parameter][moment]
            for name, adam in self.optimizers.items()
            for key, parameter in self.networks[name].named_parameters()
            for moment in _ADAM
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Load a `state_dict`. All of it is checked before anything changes."""
        _compare(
            {name: (value.shape, value.dtype) for name, value in state.items()}, self.state_dict()
        )
        words = {name: state[f"generator.{name}"].cpu().numpy() for name in self.streams}
        for name in words:
            _check_stream(name, words[name])
        _check_counters(state)
        self._load_sampler(state)
        for name, network in self.networks.items():
            network.load_state_dict(_under(name, state))
        for name, moment in self._adam_moments().items():
            moment.copy_(state[name])
        if self.config.normalize_observations:
            self.perception.normalizer.load_state_dict(_under("normalizer", state))
        self.updates = int(state["updates"])
        for name, stream in self.streams.items():
            set_generator_state(stream, words[name].view(np.uint64))

    def _load_sampler(self, state: dict[str, Tensor]) -> None:
        """Its arrays may grow, so that only the sampler itself can check them."""
        arrays = {k: each.cpu().numpy() for k, each in _under(_SAMPLER[:-1], state).items()}
        try:
            self.sampler.load_state_dict(arrays)
        except (LookupError, TypeError, ValueError) as error:
            kind = type(self.sampler).__name__
            raise BadInput(
                f"the sampler {kind} cannot load its state: {one_line(error)}"
            ) from error

    def check_saving(self) -> None:
        """Refuse an agent of the user's own that would not come back from its file as it is."""
        for name, value in vars(self).items():
            held = value if isinstance(value, (list, tuple)) else [value]
            held = list(value.values()) if isinstance(value, dict) else held
            for each in held:
                if (advice := self._lost(each, alone=each is value)) and name != "optimizers":
                    raise BadInput(f"{name} of the agent would not be saved; {advice}")
        state, sizes = self.state_dict(), (self.low.tolist(), self.high.tolist())
        try:
            about = _About(self.layout, *sizes, self.config, self.dtype)
            skeleton = _skeleton(type(self), about)
        except Exception as error:
            where = "build must also work on PyTorch's meta device, without numbers"
            raise BadInput(f"the agent could not be loaded: {where}: {blame(error)}") from error
        try:
            _compare({name: (value.shape, value.dtype) for name, value in state.items()}, skeleton)
        except BadInput as error:
            raise BadInput(f"{error}; make all networks and optimisers in build") from error
        for name, tensor in state.items():
            if tensor.dtype not in _DTYPES.values():
                raise BadInput(f"{name} has {tensor.dtype}, which is not saved")
        self._load_sampler(state)

    def _lost(self, value: object, alone: bool) -> str:
        """Why an attribute would be missing in a file, and what to do; empty if it would not."""
        if isinstance(value, nn.Module) and not alone:
            return "hold networks in attributes of their own, or in a torch.nn.ModuleList"
        if isinstance(value, Tensor) and value.requires_grad:
            return "hold parameters in a torch.nn.Module, such as a torch.nn.ParameterList"
        ours = any(value is each for each in self.optimizers.values())
        if isinstance(value, torch.optim.Optimizer) and not ours:
            return "make optimisers with self.make_optimizer(network)"
        return ""

    def acting(self) -> list[nn.Module]:
        """The networks that `select_action` computes with."""
        return [self.actor, self.critic.encoder] if self.layout.images else [self.actor]

    def _acting_tensors(self) -> list[Tensor]:
        tensors = [t for each in self.acting() for t in each.state_dict(keep_vars=True).values()]
        normalizer = self.perception.normalizer
        return [*tensors, normalizer.shift, normalizer.scale, normalizer.limit]

    def weights(self) -> Array:
        """All numbers that `select_action` computes with and learning changes, as one array."""
        tensors = self._acting_tensors()
        parts = [tensor.detach().reshape(-1).to("cpu", self.dtype) for tensor in tensors]
        weights: Array = torch.cat(parts).numpy()
        return weights

    @torch.no_grad()
    def load_weights(self, weights: Array) -> None:
        """Act as the agent that `weights` is from."""
        tensors = self._acting_tensors()
        sizes = [tensor.numel() for tensor in tensors]
        for tensor, values in zip(tensors, torch.split(torch.from_numpy(weights.copy()), sizes)):
            tensor.copy_(values.view_as(tensor))

    def to_bytes(self) -> bytes:
        """The whole agent as a safetensors file."""
        about = {
            "layout": self.layout._asdict(),
            "low": self.low.tolist(),
            "high": self.high.tolist(),
            "dtype": str(self.dtype).removeprefix("torch."),
            "config": dataclasses.asdict(self.built_with),
        }
        tensors = {key: value.cpu() for key, value in self.state_dict().items()}
        return save(tensors, metadata={"t3d": json.dumps(about)})

    def save(self, path: str | Path) -> None:
        """Write the whole agent to one safetensors file; `load` needs nothing else."""
        files.save(Path(path), self.to_bytes())

    def restore(self, path: str | Path) -> Self:
        """Take over the state of a saved agent that has this one's networks and knobs."""
        with _reading(path):
            header = _header(path)
            _compare(_described(header), self.state_dict())
            state = load_file(path)
        self.load_state_dict(state)
        return self

    @Loader
    def load(cls, path: str | Path, device: str | None = None) -> Self:  # noqa: N805
        """Read what `save` wrote, onto its own device or another. No code in the file can run.

        `T3D.load(path)` makes a new agent; `agent.load(path)` is `agent.restore(path)`.
        """
        with _reading(path):
            header = _header(path)
            about = _About.read(header)
        config = dataclasses.replace(about.config, device=device or about.config.device)
        usable_device(config.device)
        find_body(config.body, importing=False)
        with _reading(path):
            _compare(_described(header), _skeleton(cls, about))
            state = load_file(path)
            sizes = about.layout, about.low, about.high
            agent: Self = cls(*sizes, config, dtype=about.dtype)  # type: ignore[call-arg]
        agent.load_state_dict(state)
        if config.engine != "auto":  # a run writes the engine that it chose: its agent has its env
            agent.env_name = config.env
        return agent


def saved_config(path: str | Path) -> Config:
    """The config of a saved agent."""
    with _reading(path):
        return _About.read(_header(path)).config


def saved_layout(path: str | Path) -> Layout:
    """The layout of a saved agent's states."""
    with _reading(path):
        return _About.read(_header(path)).layout


def _header(path: str | Path) -> files.Header:
    """The header of an agent's file."""
    if Path(path).is_dir():
        raise BadInput(f"it is a folder; name a file, of a run {Path(path) / 'best.safetensors'}")
    return files.header(Path(path).resolve())


class _About(NamedTuple):
    """A file's description of its agent: the arguments of a constructor."""

    layout: Layout
    low: list[float]
    high: list[float]
    config: Config
    dtype: torch.dtype

    @classmethod
    def read(cls, header: files.Header) -> "_About":
        """Parse the metadata of a file."""
        about: dict[str, Any] = files.parse_json(header.metadata["t3d"].encode())
        config = Config.from_dict(about["config"])
        layout = Layout.from_json(about["layout"])
        layers = max(map(len, config.hidden_layers.values())) + len(layout.images)
        if _ARRAYS_PER_LAYER * layers > len(header.shapes):
            raise BadInput(f"it has {len(header.shapes)} arrays for {layers} layers and images")
        if about["dtype"] not in ("float32", "float64"):
            raise BadInput(f"dtype is {about['dtype']!r}; expected float32 or float64")
        dtype = getattr(torch, about["dtype"])
        return cls(layout, about["low"], about["high"], config, dtype)


def _skeleton(kind: type[Saved], about: _About) -> dict[str, Tensor]:
    """The state of an agent that has all names and shapes and no numbers: it takes no memory."""
    from t3d.learn.agent import Agent  # which is a Saved, and imports this module

    layout, low, high, config, dtype = about
    blank: Any = kind.__new__(kind)
    with torch.device("meta"):
        # Only the base class: `build` makes the networks, and a subclass may need real arrays.
        meta = dataclasses.replace(config, device="meta")
        Agent.__init__(blank, layout, low, high, meta, dtype=dtype)
    return Saved.state_dict(blank)


def _described(header: files.Header) -> Description:
    """Shape and type of every array of a file."""
    kinds = {name: _DTYPES.get(kind) for name, kind in header.dtypes.items()}
    return {name: (shape, kinds[name]) for name, shape in header.shapes.items()}


def _compare(described: Description, expected: dict[str, Tensor]) -> None:
    """Refuse arrays that are not those of an agent, by their names, shapes and types.

    Those of the sampler are its own to check.
    """
    described = {k: each for k, each in described.items() if not k.startswith(_SAMPLER)}
    expected = {k: each for k, each in expected.items() if not k.startswith(_SAMPLER)}
    if described.keys() != expected.keys():
        names = ", ".join(sorted(described.keys() ^ expected.keys())[:3])
        raise BadInput(f"the state does not fit this agent: {names} ... missing or unexpected")
    for name, tensor in expected.items():
        shape, dtype = described[name]
        if (tuple(shape), dtype) != (tuple(tensor.shape), tensor.dtype):
            wanted = f"{tensor.dtype} of shape {tuple(tensor.shape)}"
            raise BadInput(f"{name} is {dtype} of shape {tuple(shape)}; expected {wanted}")


def _under(name: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The part of a state whose names begin with a name and a dot."""
    prefix = f"{name}."
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}


def _check_stream(name: str, words: Array) -> None:
    """Refuse what is not the state of a random stream."""
    try:
        set_generator_state(generator(0, "sampling"), words.view(np.uint64))
    except (ValueError, OverflowError) as error:
        raise BadInput(f"generator.{name} is not the state of a random stream") from error


def _check_counters(state: dict[str, Tensor]) -> None:
    """Refuse counts of updates that no agent has."""
    for name, tensor in state.items():
        if name == "updates" or (name.endswith(".step") and "_optimizer." in name):
            count = float(tensor)
            if not (count >= 0 and count.is_integer()):
                raise BadInput(f"{name} is {count:g}; expected a whole number, at least 0")


@contextmanager
def _reading(path: str | Path) -> Iterator[None]:
    """Any error meanwhile means that the file is no agent."""
    try:
        yield
    except (
        *(OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError),
        *(ArithmeticError, AttributeError, MemoryError, RuntimeError, T3DError),
    ) as error:
        reason = one_line(error)
        raise BadInput(f"{path} is not a T3D agent: {reason}") from error
