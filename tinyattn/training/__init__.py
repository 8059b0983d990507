"""What a training run needs beside its model: batches, checkpoints, several processes.

`tinyattn.batches`, `tinyattn.checkpoint` and `tinyattn.distributed` are files of this folder. A
type checker finds them as attributes of `ta`, and their functions and classes here:
`from tinyattn.training import DataLoader`.
"""

from .batches import DataLoader as DataLoader
from .batches import Windows as Windows
from .batches import pad_sequence as pad_sequence
from .checkpoint import load as load
from .checkpoint import save as save
from .loop import TrainingLoop as TrainingLoop
