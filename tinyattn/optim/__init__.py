"""Optimizers and learning-rate schedules, after PyTorch's update rules."""

from ..base.names import offer, own_names
from .clipping import clip_grad_norm_ as clip_grad_norm_
from .optimizer import Optimizer as Optimizer
from .optimizer import decay_groups as decay_groups
from .schedules import CosineSchedule as CosineSchedule
from .schedules import LambdaLR as LambdaLR
from .schedules import Schedule as Schedule
from .schedules import WarmupSchedule as WarmupSchedule
from .updates import SGD as SGD
from .updates import Adam as Adam
from .updates import AdamW as AdamW

offer(globals(), "optim", sorted(own_names(globals())))
