"""What a training run needs beside its model: batches, checkpoints, several processes.

`ta.batches`, `ta.checkpoint` and `ta.distributed` are files of this folder.
"""

from .batches import DataLoader as DataLoader
from .batches import Windows as Windows
from .batches import pad_sequence as pad_sequence
from .checkpoint import load as load
from .checkpoint import save as save
from .loop import TrainingLoop as TrainingLoop
