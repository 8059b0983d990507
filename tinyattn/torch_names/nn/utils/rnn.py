"""PyTorch's `nn.utils.rnn`: of it `pad_sequence`, because recurrent layers take padded batches."""

from ....training.batches import pad_sequence as pad_sequence
