"""Published models, built from the components of `tinyattn.nn`, with their published weights.

`generate`, and what `tinyattn.observation` offers, stand here too.
"""

from ..generation import generate as generate
from ..observation import ablated as ablated
from ..observation import observed as observed
from .bert import BertEncoder as BertEncoder
from .causal import CausalLM as CausalLM
from .heads import MaskedLM as MaskedLM
from .heads import SequenceClassifier as SequenceClassifier
from .sentence import SentenceEncoder as SentenceEncoder
