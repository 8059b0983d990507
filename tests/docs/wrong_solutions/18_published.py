"""Exercise 18_published: wrong lines, and other right ones."""

# The right lines, what stands there instead, and what the grader says of it.
WRONG = [
    (" / np.maximum(norm, 1e-12)", "", "divide each by its norm"),
    ("np.arange(hidden.shape[1]) < lengths[:, None]", "hidden[..., 0] < 9", "takes in padding"),
    ("< lengths", "<= lengths", "not the means of the texts"),
    ("np.where(keep[:, :, None], hidden, 0)", "(keep[:, :, None] * hidden)", "0 * NaN is NaN"),
    ("np.maximum(lengths, 1)", "lengths", "length 0 has the point 0"),
    ("np.maximum(norm, 1e-12)", "norm", "length 0 has the point 0"),
    ("sum(axis=-1, keepdims=True)", "sum(keepdims=True)", "do not have norm 1"),
    ("(mean**2)", "(mean**4)", "do not have norm 1"),
    ("for name, ours in wanted.items()}", "for ours, name in zip(own, file)}", "is not"),
    ("return {ours: file", "return {name: file", "the names are"),
    (" and name not in IGNORED", "", "fitted raised ValueError"),
    ("if missing or unknown", "if missing", "a seventh layer is passed over"),
    ("if missing or unknown", "if unknown", "instead of a ValueError"),
    ("shape != own[ours].shape", "ndim != own[ours].ndim", "compare the shapes"),
    ("shape != own[ours].shape", "size != own[ours].size", "compare the shapes"),
    ("np.maximum(norm, 1e-12)", "np.maximum(norm, 1)", "10 times smaller"),
    ("{ours: file[name] for", "{ours: file.pop(name) for", "takes tensors out of `file`"),
    (
        "file[name].shape != own[ours].shape",
        "file[name].shape not in ((1,), own[ours].shape)",
        "of shape (1,) is taken: compare the shapes",
    ),
    (
        "    return {ours: file",
        "    for x in own.values():\n        x += 1\n    return {ours: file",
        "fitted changed the arrays of `own`",
    ),
    (
        "    keep = np",
        "    hidden[:, 1:] *= 2\n    keep = np",
        "point changed the hidden states",
    ),
    (
        "    return mean / np.maximum(norm, 1e-12)",
        "    return mean / np.maximum(norm, 1e-12)[..., None]",
        "points of (3, 5, 4) are (3, 4), not (",
    ),
    (
        "return mean / np.maximum(norm, 1e-12)",
        "return mean / (norm - norm)",
        "the points have values that are not finite",
    ),
    (
        'raise ValueError(f"{name} has shape {file[name].shape}, not {own[ours].shape}")',
        'raise ValueError("a shape is wrong")',
        "the tensor of another shape is not named: a shape is wrong",
    ),
    (
        "not wanted {unknown}",
        "not wanted {len(unknown)}",
        "the tensor that is not wanted is not named: missing [], not wanted 1",
    ),
    (
        "missing {missing}",
        "missing {len(missing)}",
        "the missing tensor is not named: missing 1",
    ),
    (
        "    return {ours: file[name] for name, ours in wanted.items()}",
        "    return list(wanted.values())",
        "fitted returns a dict, not list",
    ),
]

# The same in another way.
ALSO_RIGHT = [
    ("np.maximum(norm, 1e-12)", "np.where(norm == 0, 1, norm)"),
    ("{ours: file[name] for", "{ours: file[name].astype(own[ours].dtype) for"),
]
