"""Published models, built from the components of `tinyattn.nn`, with their published weights.

What `tinyattn.generation`, `tinyattn.interop` and `tinyattn.observation` offer stands here too.
"""

from ..generation import beam_search as beam_search
from ..generation import generate as generate
from ..generation import min_length as min_length
from ..generation import repetition_penalty as repetition_penalty
from ..interop import from_torch as from_torch
from ..interop import load_torch_state_dict as load_torch_state_dict
from ..interop import torch_state_dict as torch_state_dict
from ..observation import ablated as ablated
from ..observation import observed as observed
from .bert import BertEncoder as BertEncoder
from .causal import CausalLM as CausalLM
from .heads import MaskedLM as MaskedLM
from .heads import SequenceClassifier as SequenceClassifier
from .sentence import SentenceEncoder as SentenceEncoder
