"""Published models, built from the components of `tinyattn.nn`, with their published weights."""

from .bert import BertEncoder as BertEncoder
from .sentence import SentenceEncoder as SentenceEncoder
