"""Optimizers and learning-rate schedules, after PyTorch's update rules."""

from ..base.names import offer
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

_own = [n for n, x in globals().items() if getattr(x, "__module__", "").startswith(__name__)]
offer(globals(), "optim", sorted(_own))
