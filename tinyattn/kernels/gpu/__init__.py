"""The kernels on a GPU: CUDA C++, compiled when first launched, through CuPy.

Each `.cu` file stands beside the Python of the same name that launches it. A function here takes
the arguments of its formula in `tinyattn/ops`. It brings the arrays into the layout of the
kernel, chooses how many threads work on what, and launches. It never waits for the device.

    tiled_attention  attention, tile by tile
    softmax          softmax, its logarithm, and cross-entropy
    weighted_sum     weights times values, without invisible pairs
    layer_norm       layer normalization, and RMSNorm
    elementwise      activations and dropout
    embedding        the gradient of a table of rows
    sums             sums over rows
    optimizer        Adam
    checks           checks of integers
    launch.py        how a kernel is compiled, and gets its arguments
    common.cu        functions that all kernels use
"""
