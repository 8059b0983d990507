"""PyTorch's `torch.utils`: the names for data sets are in `data`."""
