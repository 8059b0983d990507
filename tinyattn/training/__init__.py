"""What a training run needs beside its model: batches, checkpoints, several processes.

`tinyattn.batches`, `tinyattn.checkpoint` and `tinyattn.distributed` are the files of this folder.
"""
