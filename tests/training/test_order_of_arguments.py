"""Arguments of what trains, draws and observes, by their places, and what each is if left out."""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest

import tinyattn as ta
from tinyattn import models, nn, optim, training, viz
from tinyattn.torch_names.optim import RMSprop
from tinyattn.torch_names.optim import lr_scheduler as schedules
from tinyattn.training import distributed

# Each function, and its arguments in order; "*" stands before those that have to be named.
ARGUMENTS: dict[Any, dict[str, Any]] = {
    optim.SGD: {
        "params": ..., "lr": 1e-3, "momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0,
        "nesterov": False,
    },
    optim.Adam: {
        "params": ..., "lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0,
    },
    optim.AdamW: {
        "params": ..., "lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-2,
    },
    optim.Optimizer.zero_grad: {"set_to_none": True},
    optim.Optimizer.step: {"closure": None},
    optim.WarmupSchedule: {"optimizer": ..., "d_model": ..., "warmup": 4000, "factor": 1.0},
    optim.CosineSchedule: {"optimizer": ..., "total": ..., "warmup": 0, "final": 0.0},
    optim.LambdaLR: {"optimizer": ..., "lr_lambda": ...},
    optim.clip_grad_norm_: {
        "parameters": ..., "max_norm": ..., "norm_type": 2.0, "error_if_nonfinite": False,
    },
    optim.decay_groups: {"parameters": ..., "weight_decay": ...},
    RMSprop: {"params": ..., "lr": 1e-2, "alpha": 0.99, "**": ...},
    schedules.LRScheduler: {"optimizer": ..., "last_epoch": -1},
    schedules.LRScheduler.step: {"epoch": None},
    schedules.LambdaLR: {"optimizer": ..., "lr_lambda": ..., "last_epoch": -1},
    schedules.MultiplicativeLR: {"optimizer": ..., "lr_lambda": ..., "last_epoch": -1},
    schedules.StepLR.change: {"n": ..., "step_size": ..., "gamma": 0.1},
    schedules.MultiStepLR.change: {"n": ..., "milestones": ..., "gamma": 0.1},
    schedules.ConstantLR.change: {"n": ..., "factor": 1 / 3, "total_iters": 5},
    schedules.LinearLR.change: {
        "n": ..., "start_factor": 1 / 3, "end_factor": 1, "total_iters": 5,
    },
    schedules.ExponentialLR.change: {"n": ..., "gamma": ...},
    schedules.PolynomialLR.change: {"n": ..., "total_iters": 5, "power": 1.0},
    schedules.CosineAnnealingLR: {
        "optimizer": ..., "T_max": ..., "eta_min": 0.0, "last_epoch": -1,
    },
    schedules.CosineAnnealingWarmRestarts: {
        "optimizer": ..., "T_0": ..., "T_mult": 1, "eta_min": 0.0, "last_epoch": -1,
    },
    schedules.OneCycleLR: {
        "optimizer": ..., "max_lr": ..., "total_steps": None, "epochs": None,
        "steps_per_epoch": None, "pct_start": 0.3, "anneal_strategy": "cos",
        "cycle_momentum": True, "base_momentum": 0.85, "max_momentum": 0.95, "div_factor": 25.0,
        "final_div_factor": 1e4, "**": ...,
    },
    schedules.ChainedScheduler: {"schedulers": ..., "optimizer": None},
    schedules.SequentialLR: {
        "optimizer": ..., "schedulers": ..., "milestones": ..., "last_epoch": -1,
    },
    schedules.ReduceLROnPlateau: {
        "optimizer": ..., "mode": "min", "factor": 0.1, "patience": 10, "threshold": 1e-4,
        "threshold_mode": "rel", "cooldown": 0, "min_lr": 0.0, "eps": 1e-8,
    },
    schedules.ReduceLROnPlateau.step: {"metrics": ..., "epoch": None},
    training.DataLoader: {
        "data": ..., "batch_size": 1, "shuffle": False, "drop_last": False, "collate_fn": None,
    },
    training.Windows: {"ids": ..., "length": ..., "batch_size": ..., "seed": 0},
    training.TrainingLoop: {
        "path": ..., "parts": ..., "settings": None, "save_every": 30.0, "patience": math.inf,
    },
    training.TrainingLoop.steps: {"total": ..., "seconds": math.inf},
    training.pad_sequence: {"sequences": ..., "batch_first": False, "padding_value": 0},
    training.save: {"state": ..., "path": ...},
    distributed.DistributedDataParallel.backward: {"loss": ..., "weight": 1.0},
    distributed.DistributedDataParallel.accumulate: {"losses": ..., "weights": ...},
    models.observed: {"model": ..., "weights": ()},
    models.ablated: {"model": ..., "heads": ..., "to": "zero"},
    nn.Parameter: {"data": ..., "requires_grad": True, "dtype": None, "device": None},
    nn.Module.named_modules: {"prefix": ""},
    nn.Module.named_parameters: {"prefix": "", "recurse": True},
    nn.Module.named_buffers: {"prefix": "", "recurse": True},
    nn.Module.parameters: {"recurse": True},
    nn.Module.buffers: {"recurse": True},
    nn.Module.train: {"mode": True},
    nn.Module.zero_grad: {"set_to_none": True},
    nn.Module.requires_grad_: {"requires_grad": True},
    nn.Module.to: {"**targets": ..., "*": ..., "device": None, "dtype": None},
    viz.show_heatmaps: {
        "matrices": ..., "xlabel": "Keys", "ylabel": "Queries", "titles": None, "xticks": None,
        "yticks": None, "mask": None, "figsize": None, "cmap": "Blues", "vmin": 0.0, "vmax": 1.0,
        "zlabel": "Weight",
    },
    viz.plot_curves: {
        "curves": ..., "xlabel": "Step", "ylabel": "Loss", "smooth": 1, "figsize": (5.0, 3.2),
    },
    viz.plot_gradient_norms: {"stacks": ..., "figsize": (5.0, 3.2)},
    viz.show_shapes: {"**parts": ..., "*": ..., "scale": 0.25},
    viz.show_graph: {"tensor": ..., "names": None},
}  # fmt: skip


def arguments_of(function: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, argument in inspect.signature(function).parameters.items():
        if name == "self":
            continue
        if argument.kind is argument.KEYWORD_ONLY:
            found.setdefault("*", ...)
        if argument.kind is argument.VAR_KEYWORD:
            name = "**"
        elif argument.kind is argument.VAR_POSITIONAL:
            name = f"**{name}"
        found[name] = ... if argument.default is argument.empty else argument.default
    return found


@pytest.mark.parametrize("number", range(len(ARGUMENTS)))
def test_arguments_keep_their_places_and_their_defaults(number: int) -> None:
    function, expected = list(ARGUMENTS.items())[number]
    assert list(arguments_of(function).items()) == list(expected.items()), function


def test_a_parameter_takes_its_options_in_order() -> None:
    made = nn.Parameter([1, 2], False, ta.float64, "cpu")
    assert (made.requires_grad, made.dtype, made.device) == (False, ta.float64, "cpu")
    assert made.tolist() == [1.0, 2.0]
