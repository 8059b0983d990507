"""Each grader of docs/exercises is red on the holes, red with the right sentence on wrong
solutions, and green on the solution."""

from __future__ import annotations

import csv
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import grading
import pytest
import student_copy

FOLDER = Path(__file__).parents[2] / "docs" / "exercises"
# What a wrong solution has instead of the right lines, and what the grader says of it.
WRONG = {
    "00_text_to_numbers": [
        ("enumerate(vocabulary)", "enumerate(vocabulary, 1)", "from 0"),
        (
            "numbers.get(word, unknown)",
            "numbers.get(word, len(vocabulary))",
            "gets the id `unknown`",
        ),
        ("numbers.get(word, unknown)", "numbers.get(word, 0)", "another number than 0"),
        ("return -np.log(p", "return np.log(p", "the sign of log p is missing"),
        ("targets]).mean()", "targets]).sum()", "this is the sum of the losses"),
        ("targets]).mean()", "targets])", "not an array of shape (4,)"),
        (
            "-np.log(p[np.arange(len(targets)), targets])",
            "p[np.arange(len(targets)), targets]",
            "mean of p",
        ),
        ("targets]).mean()", "targets].mean())", "the logarithm is taken after the mean"),
        ("-np.log(", "-np.log2(", "the logarithm has base 2"),
        ("powers.sum(axis=-1, keepdims=True)", "powers.sum(axis=0)", "over the words of the text"),
        (
            "-np.log(p[np.arange(len(targets)), targets]).mean()",
            "-(np.eye(5)[targets] * np.log(p)).mean()",
            "the right ones alone count",
        ),
        ("targets]).mean()", "targets]).max()", "not the mean of -log p"),
        (" / len(targets)", "", "divided by the number of words"),
        ("(probabilities(logits) - y)", "(y - probabilities(logits))", "the wrong sign"),
        ("(probabilities(logits) - y)", "probabilities(logits)", "y is missing"),
        ("- y) / len(targets)", "- y) / logits.size", "by the number of logits"),
        ("np.arange(len(targets)), targets", ":, targets", "takes columns of all rows"),
        ("powers.sum(axis=-1, keepdims=True)", "powers.sum()", "probabilities together sum to 1"),
        (
            "    y = np.eye(logits.shape[1])[targets]\n    return (probabilities(logits) - y)",
            "    p = probabilities(logits)\n    p[:, targets] -= 1\n    return p",
            "takes columns of all rows",
        ),
        (
            "    y = np.eye(logits.shape[1])[targets]\n    return (probabilities(logits) - y)",
            "    p = probabilities(logits)\n    p[targets] -= 1\n    return p",
            "in line 23: p[targets] -= 1; [targets] takes whole rows",
        ),
        (
            "np.add.at(table, ids, gradient)",
            "table = np.eye(size)[ids] @ gradient",
            "the columns of A are 6 and the rows of B are 4, in line 28: table = np.eye(size)[ids] "
            "@ gradient; is a .T missing",
        ),
        (
            "np.array([numbers.get(word, unknown) for word in words])",
            "[numbers.get(word, unknown) for word in words]",
            "encode gives a list",
        ),
        ("- y) / len(targets)", "- y).sum(-1)", "have a gradient (4, 5)"),
        ("- y) / len(targets)", "- y / 2) / len(targets)", "is not (p - y) / N"),
        ("np.add.at(table, ids, gradient)", "table[ids] += gradient", "yours gets the last one"),
        (
            "np.add.at(table, ids, gradient)",
            "for i, row in zip(ids[::-1], gradient[::-1]):\n        table[i] = row",
            "yours gets the first one",
        ),
        (
            "return table",
            "return table / np.maximum(np.bincount(ids, minlength=size), 1)[:, None]",
            "not the mean",
        ),
        ("return table", "return table[ids]", "has a gradient (6, 3)"),
        ("return table", "return table * 2", "row i is not the sum"),
    ],
    "01_soft_lookup": [
        (" / np.sqrt(d)", "", "not divided by sqrt(d)"),
        ("np.sqrt(d)", "d", "divided by d, not by sqrt(d)"),
        ("np.sqrt(d)", "np.sqrt(len(keys))", "by the root of the number of keys"),
        ("np.sqrt(d)", "np.sqrt(len(queries))", "by the root of the number of queries"),
        ("/ (2 * width**2)", "/ 2 * width**2", "divides by 2 alone"),
        (
            "queries[:, None] - keys  #",
            "queries - keys  #",
            "in line 20: differences = queries - keys  # (n, m, d); for all pairs of rows, give "
            "the first an axis more: queries[:, None]",
        ),
        (
            "queries @ keys.T / np.sqrt(d)",
            "np.array([q[9] for q in queries])",
            "index 9 is out of bounds for axis 0 with size 4, in line 13: scores =",
        ),
        ("axis=-1, keepdims", "axis=0, keepdims", "over the queries"),
        ("powers.sum(axis=-1, keepdims=True)", "powers.sum()", "all weights together sum to 1"),
        ("return softmax(scores) @", "return softmax(scores) / 2 @", "not those of softmax(Q"),
        ("return softmax(scores) @", "return -softmax(scores) @", "so it gets value i"),
        (
            "return softmax(scores)",
            "return softmax(scores + np.arange(len(keys)) / 9)",
            "in another order",
        ),
        ("return softmax(scores) @ values", "return softmax(scores)", "give (3, 2), not (3, 5)"),
        (
            "return softmax(scores) @",
            "softmax(scores) @",
            "attention returns nothing: end it with a return",
        ),
        ("softmax(-squares", "softmax(squares", "a far key gets more weight"),
        ("(differences**2).sum(axis=-1)", "np.linalg.norm(differences, axis=-1)", "not squared"),
        ("width**2", "width", "the width is not squared"),
        ("(2 * width**2)", "width**2", "not halved"),
        ("softmax(-squares / (2 * width**2))", "softmax(-squares)", "do not depend on the width"),
        ("(2 * width**2)) @ values", "(2 * width**2))", "3 queries gives (3, 2), not (3, 5)"),
        ("(2 * width**2)) @", "(3 * width**2)) @", "not those of softmax(-distance"),
    ],
    "02_an_engine": [
        ("g @ b.T", "b @ g.T", "backward raised ValueError"),
        ("a.T @ g", "(g.T @ a).T * 2", "A.T @ G"),
        (
            "lambda g: g @ b.T), (other, lambda g: a.T @ g)",
            "lambda g: a.T @ g), (other, lambda g: g @ b.T)",
            "the two rules of A @ B are exchanged",
        ),
        ("parent.grad + fit(", "fit(", "takes the place of another one: add"),
        ("order[::-1]", "order", "yours"),
        ("if id(node) not in found", "if True", "before it is complete, or twice"),
        ("if size == 1 and", "if False and", "gives shape"),
        ("grad.sum(0)", "grad[0]", "sum over what was broadcast"),
        ("fit(rule(node.grad), parent.data.shape)", "rule(node.grad)", "has a gradient (3,)"),
        ("self.grad = grad\n", "self.grad = grad\n        grad *= 1.5\n", "yours"),
        (
            "grad = grad.sum(0)",
            "grad = grad.sum(next((i for i, n in enumerate(grad.shape) if n not in shape), -1))",
            "broadcasting adds axes in front",
        ),
    ],
    "03_the_real_engine": [
        ("uses[parent] += 1", "uses[parent] = 1", "count each place, not each user"),
        (
            "if parent not in uses:\n                uses[parent] = 0",
            "if uses.setdefault(parent, 0) < 9:",
            "visit each tensor once",
        ),
        (
            "    uses, stack",
            "    deep = lambda x: [*map(deep, x.inputs or ())]\n    deep(root)\n    uses, stack",
            "keep a list instead of recursion",
        ),
        ("left = dict(uses)", "left = uses", "count down in a copy"),
        ("if left[parent] == 0:", "if parent not in order + ready:", "wait for all users"),
        ("!= tensor.changes_of_saved", "!= [0] * len(tensor.saved)", "compare counts"),
        ('raise RuntimeError("an array', 'print("an array', "x has changed after x * x"),
        (
            "    gradients = {root: grad}\n    for tensor in order:\n",
            "        if tensor is root:\n            gradients = {root: grad}\n",
            "before anything else",
        ),
        (
            "        if tensor.rule is None:\n",
            "        if tensor.rule:\n            tensor.grad = gradient\n        else:\n",
            "a computed tensor has a .grad",
        ),
        (
            "        if tensor.rule is None:\n",
            "        if tensor.rule:\n            gradient = gradient + getattr(tensor, 'sum', 0)\n"
            "            tensor.sum = gradient\n        else:\n",
            "belong to one call",
        ),
        ("gradient if tensor.grad is None else tensor.grad + gradient", "gradient", "not replace"),
        (
            "gradients[parent] + part if parent in gradients else part",
            "np.add(gradients[parent], part, gradients[parent]) if parent in gradients else part",
            "do not add in place",
        ),
        ("tensor.inputs, tensor.saved = None, ()", "pass", "does not free what z has saved"),
        (
            "        if not retain_graph:\n            tensor.inputs",
            "    for tensor in order if not retain_graph else ():\n        if tensor.rule:\n"
            "            tensor.inputs",
            "free it when its rule has run",
        ),
        ("if not retain_graph:", "if True:", "must free nothing"),
        (
            "        gradient = gradients.pop(tensor)\n",
            "        if tensor is root and not tensor.inputs:\n            break\n"
            "        gradient = gradients.pop(tensor)\n",
            "backward of a leaf stores its gradient too",
        ),
        (
            '            raise RuntimeError("this graph',
            "            if tensor is not root:\n"
            "                tensor.inputs, tensor.rule = (), None\n                continue\n"
            '            raise RuntimeError("this graph',
            "y has been freed",
        ),
        (
            "[saved.changes for saved in tensor.saved] != tensor.changes_of_saved",
            "[x.changes for x in tensor.saved[:1]] != tensor.changes_of_saved[:1]",
            "w has changed after x * w",
        ),
        (
            "[saved.changes for saved in tensor.saved] != tensor.changes_of_saved",
            "[x.changes for x in tensor.saved[1:]] != tensor.changes_of_saved[1:]",
            "x has changed after x * w",
        ),
    ],
    "04_gradcheck": [
        (
            "standard_normal(np.shape(function(x)))",
            "random(np.shape(function(x))) * 0 + 1",
            "plain mean",
        ),
        ("1e-6 * np.abs(slopes).max() + 1e-9", "1e-6", "make the tolerance relative"),
        ("1e-6 * np.abs", "1e-2 * np.abs", "1 in 1,000"),
        ("x.astype(np.float64)", "x.copy()", "at a float32 x"),
        ("    x = x.astype(np.float64)\n", "    x += 1\n", "is_right changed x"),
        (".max()\n", ".min()\n", "in one element"),
        ("return bool", "return float", "True or False"),
        ("np.abs(rule(grad, x) - slopes)", "(rule(grad, x) - slopes)", "exp minus 1: compare abs"),
        ("np.abs(rule(grad, x) - slopes)", "(slopes - rule(grad, x))", "exp plus 1: compare abs"),
        ("standard_normal(np", "random(np", "exp with abs(grad): a cotangent has both signs"),
        (
            "(0).standard_normal(np",
            "(0).uniform(-1, 0, np",
            "exp with -abs(grad): a cotangent has both signs",
        ),
        ("(np.shape(function(x)))", "(x.shape[-1:]) + 0 * function(x)", "rows that differ"),
        ("(np.shape(function(x)))", "((len(function(x)), 1)) + 0 * function(x)", "columns"),
        ("np.abs(slopes).max()", "slopes.max()", "the right rule of one number is refused"),
        (
            "1e-6 * np.abs(slopes).max() + 1e-9",
            "1e-6 * max(np.abs(slopes).max(), 1)",
            "1e-7 sin(x)",
        ),
        ("difference <=", "not difference >", "a comparison with nan is False"),
    ],
    "05_softmax": [
        ("/ e.sum(", "/ e.max(", "the weights of a row do not sum to 1"),
        ("np.exp(x - x", "np.exp(x.clip(-500) - x.clip(-500)", "a row far below 0 has wrong"),
        ("keepdims=True))\n    return e", "keepdims=True)) + 1e-30\n    return e", "0 and -inf"),
        (
            "out * (grad - (grad * out).sum(axis=-1, keepdims=True))",
            "grad * out * (1 - out)",
            "this is the diagonal alone",
        ),
        (
            "out * (grad - (grad * out).sum(axis=-1, keepdims=True))",
            "(np.diag(out) - np.outer(out, out)) @ grad",
            "np.diag and np.outer are for one row",
        ),
        ("e.sum(axis=-1, keepdims=True)", "e.sum(axis=-1)", "keep its axis with keepdims=True"),
        (" - x.max(axis=-1, keepdims=True)", "", "a score of 1000 gives nan: subtract the maximum"),
        ("x.max(axis=-1, keepdims=True)", "x.max()", "not that of the array"),
        ("e.sum(axis=-1, keepdims=True)", "e.sum()", "take the sum of each row"),
        ("e.sum(axis=-1, keepdims=True)", "e.sum(axis=0)", "columns sum to 1"),
        ("np.exp(x - x", "np.exp2(x - x", "are not exp(x) / sum(exp(x))"),
        ("    e = np", "    x -= 1\n    e = np", "softmax changed its argument"),
        ("(grad - (grad * out).sum(axis=-1, keepdims=True))", "grad", "must give 0: subtract"),
        ("grad * out).sum", "grad).mean", "a cotangent of ones cannot see it"),
        ("x.max(axis=-1", "x.max(axis=int(x.ndim > 1)", "softmax of (2, 3, 4) is wrong"),
        ("(grad * out).sum(axis=-1", "(grad * out).sum(axis=1", "the gradient of (2, 1, 4)"),
        (
            "return out * (grad - (",
            "grad -= (grad * out).sum(axis=-1, keepdims=True)\n    return out * (grad - 0 * (",
            "changed grad or out",
        ),
    ],
    "06_masks": [
        ("no_padding[:, None, :] &", "no_padding[:, None, :1] &", "key 2 of a sample of length 2"),
        ("None, :] & no_future", "None, :] * 1 & no_future", "a mask holds booleans"),
        (
            "no_padding[:, None, :] & no_future",
            "np.tile(no_future, (len(lengths), 1, 1))",
            "length 0",
        ),
        (
            "    return e / np",
            "    e = e + ~visible * 1e-3\n    return e / np",
            "invisible key has weight",
        ),
        ("    return e / np", "    e = e * 2\n    return e / np", "do not sum to 1"),
        (
            "    return e / np.where(total == 0, 1.0, total)",
            "    e = np.sqrt(e)\n    return e / e.sum(axis=-1, keepdims=True).clip(1e-99)",
            "not their softmax",
        ),
        ("keys < lengths[:, None]", "keys < lengths", "keys < lengths; lengths (B,) need axes"),
        ("keys <= keys", "keys < keys", "k <= i, not k < i"),
        ("keys <= keys[:, None]", "keys[:, None] <= keys", "sees a key behind it"),
        (
            "return no_padding[:, None, :] & no_future",
            "return ~(no_padding[:, None, :] & no_future)",
            "the mask is inverted",
        ),
        ("    shown = np", "    scores[~visible] = 0\n    shown = np", "changed its scores"),
        ("no_padding[:, None, :]", "no_padding", "visible_keys raised ValueError"),
        ("keys < lengths", "keys <= lengths", "k < length, not <="),
        ("no_padding[:, None, :]", "no_padding[:, :, None]", "not queries"),
        ("np.where(total == 0, 1.0, total)", "total", "without visible keys gives nan"),
        ("scores, -np.inf", "scores, -1e9", "-1e+09 get wrong weights"),
        (
            "scores, -np.inf)",
            "scores, -1e12)\n    visible = visible & (shown > -1e9)",
            "-1e+30 get wrong weights",
        ),
        ("shown.max(axis=-1, keepdims=True)", "shown.max()", "not that of the array"),
        ("np.where(most == -np.inf, 0.0, most)", "np.maximum(most, 0)", "maximum of the visible"),
        ("    return e /", "    e = np.exp(scores) * visible\n    return e /", "NaN has influence"),
    ],
    "07_scoring": [
        ("q[:, :, None] + k[:, None]", "q + k", "query i is added to key i alone"),
        (" / np.sqrt(queries.shape[-1])", "", "not divided by sqrt(d)"),
        (
            "    return queries @ keys.swapaxes(1, 2) / np.sqrt(queries.shape[-1])",
            "    queries /= np.sqrt(queries.shape[-1])\n    return queries @ keys.swapaxes(1, 2)",
            "your function changes queries",
        ),
        ("np.sqrt(queries.shape[-1])", "queries.shape[-1]", "divided by d, not by sqrt(d)"),
        ("np.sqrt(queries.shape[-1])", "np.sqrt(queries.shape[1])", "with d the width of a query"),
        ("keys.swapaxes(1, 2)", "keys.T", "exchange the last two axes only"),
        (
            "return queries @ keys.swapaxes(1, 2)",
            "return keys @ queries.swapaxes(1, 2)",
            "rows are keys, and columns are queries",
        ),
        ("np.tanh(q[:, :, None] + k[:, None])", "q[:, :, None] + k[:, None]", "no influence"),
        (
            "np.tanh(q[:, :, None] + k[:, None])",
            "np.tanh(q[:, :, None]) + np.tanh(k[:, None])",
            "without a tanh of the sum",
        ),
        ("q[:, :, None] + k[:, None]", "q[:, None] + k[:, :, None]", "rows are keys"),
        (
            "return features(queries, keys, W_q, W_k) @ w_v",
            "scores = features(queries, keys, W_q, W_k).swapaxes(1, 2) @ w_v\n"
            "    return scores.reshape(len(queries), queries.shape[1], -1)",
            "rows are keys",
        ),
        ("q[:, :, None] + k[:, None]", "q[:, :, None] - k[:, None]", "not w_v . tanh(W_q q"),
        ("return of_queries, of_w_v", "return of_w_v, of_queries", "first the queries, then w_v"),
        (".sum(axis=(0, 1, 2))", ".mean(axis=(0, 1, 2))", "take the sum"),
        (".sum(axis=2) @ W_q", " @ W_q", "so sum over the keys"),
        (" * (1 - f**2)", "", "1 - tanh^2"),
        ("(axis=(0, 1, 2))", "(axis=(0, 1))", "sum over samples, queries and keys"),
        ("(grad[..., None] * f)", "(grad[..., None] * f**2)", "gradient of w_v is not that"),
        (
            "return features(queries, keys, W_q, W_k) @ w_v",
            "return np.squeeze(features(queries, keys, W_q, W_k) @ w_v)",
            "scores are (B, Q, K), here (1, 1",
        ),
        (
            "queries @ keys.swapaxes(1, 2) /",
            "(queries @ keys.swapaxes(1, 2)).squeeze() /",
            "scores are (B, Q, K), here (1, 1, 5)",
        ),
    ],
    "08_layer_norm": [
        (
            "    return centred / np.sqrt(variance + eps)\n",
            "    return (centred / np.sqrt(variance + eps))[0]\n",
            "layer_norm of (3, 4) has shape (3, 4)",
        ),
        (
            "    return (grad - ones - y * along_y) / sigma",
            "    return ((grad - ones - y * along_y) / sigma).sum(0)",
            "the gradient of x has x's shape",
        ),
        (
            "(centred**2).mean(axis=-1, keepdims=True)\n",
            "x.var(axis=-1, ddof=1, keepdims=True)\n",
            "divided by d - 1",
        ),
        ("np.sqrt(variance + eps)", "(np.sqrt(variance) + eps)", "belongs under the root"),
        ("variance + eps", "variance", "sqrt(variance + eps)"),
        ("axis=-1", "axis=0", "take the mean of each row"),
        ("grad - ones - y", "grad - y", "points along ones"),
        (" - y * along_y", "", "points along x - mean"),
        (" / sigma\n    ones", "\n    ones", "x - mean is in place of y"),
        ("along_y) / sigma", "along_y)", "divide by sqrt(variance + eps)"),
        ("y = centred / sigma", "y = layer_norm(x)", "with eps=0.5"),
        ("axis=-1", "axis=1", "rows lie along the last axis"),
        ("(grad * y).mean(axis=-1", "(grad * y).mean(axis=1", "the gradient of (2, 1, 5)"),
        (
            "variance = (centred**2).mean(axis=-1, keepdims=True)",
            "variance = (x**2).mean(-1, keepdims=True) - x.mean(-1, keepdims=True) ** 2",
            "loses digits",
        ),
        ("    variance =", "    x -= 1\n    variance =", "layer_norm changed x"),
        ("    ones =", "    grad += 1\n    ones =", "layer_norm_backward changed grad or x"),
    ],
    "09_heads": [
        (".transpose(0, 2, 1, 3)", ".transpose(1, 2)", "swapaxes(1, 2) exchanges two of them"),
        (
            "np.sqrt(q.shape[-1]))  # (B, H, Q, K)\n    return merge_heads(weights @ v) @ W_o.T",
            "1)\n    return merge_heads(weights @ v)",
            "2 mistakes: the scores are not divided by sqrt(d); the output is not projected by W_o",
        ),
        (
            "x.reshape(batch, n, num_heads, width // num_heads)  # (B, N, H, d)\n"
            "    return x.transpose(0, 2, 1, 3)",
            "x.reshape(batch, num_heads, n, width // num_heads)\n    return x",
            "row n of a head does not come from position n",
        ),
        (
            "num_heads, width // num_heads)  # (B, N, H, d)\n    return x.transpose(0, 2, 1, 3)",
            "width // num_heads, num_heads)\n    return x.transpose(0, 3, 1, 2)",
            "every H-th number",
        ),
        ("return x.transpose(0, 2, 1, 3)", "return x", "is (B, H, N, d) = (2, 3, 4, 4)"),
        ("    x = x.transpose(0, 2, 1, 3)", "    x = x", "numbers of other positions"),
        (
            "    x = x.transpose(0, 2, 1, 3)",
            "    x = x.transpose(0, 2, 3, 1)",
            "its d numbers of head 0",
        ),
        ("np.sqrt(q.shape[-1])", "np.sqrt(queries.shape[-1])", "so divide by sqrt(d)"),
        (" @ W_o.T", "", "not projected by W_o"),
        ("W_o.T", "W_o", ".T is missing at W_o"),
        ("queries @ W_q.T", "queries @ W_q", ".T is missing at W_q"),
        ("_k.T", "_k", ".T is missing at W_k"),
        ("queries @ W_q.T", "queries", "the queries are not projected: multiply them by W_q^T"),
        ("values @ W_v.T", "values", "the values are not projected: multiply them by W_v^T"),
        (" / np.sqrt(q.shape[-1])", "", "the scores are not divided by sqrt(d)"),
        ("np.sqrt(q.shape[-1])", "q.shape[-1]", "the scores are divided by d, not by sqrt(d)"),
        ("    q = split", "    queries += 1\n    q = split", "changed its arguments"),
        ("axis=-1", "axis=-2", "take it over the keys"),
        ("e.sum(axis=-1", "e.sum(axis=-2", "the weights sum to 1 over the queries"),
        ("axis=-1", "axis=1", "the weights sum to 1 over the heads"),
        ("axis=-1", "axis=0", "the weights sum to 1 over the samples"),
        ("return e / e.sum(axis=-1, keepdims=True)", "return e / e.sum()", "do not sum to 1"),
        ("weights @ v)", "weights @ k)", "the keys are taken as values"),
        ("values @ W_v.T", "keys @ W_v.T", "the keys are taken as values"),
        ("keys @ W_k.T", "keys @ W_q.T", "projected by W_q, not by W_k"),
        (" - x.max(axis=-1, keepdims=True)", "", "score above 1000 in one head gives nan"),
        ("x.max(axis=-1, keepdims=True)", "x.max()", "give nan for other queries"),
        ("x.max(axis=-1, keepdims=True)", "x.max((2, 3), keepdims=True)", "for other queries"),
        ("np.exp(x - x.max(axis=-1, keepdims=True))", "np.exp(x.clip(-50, 50))", "with large"),
        (
            "softmax(q @",
            "softmax(q.reshape(q.shape[0], q.shape[2], q.shape[1], -1).swapaxes(1, 2) @",
            "row n is not query n",
        ),
        (
            "    q = split",
            "    num_heads = 1\n    q = split",
            "that of one head of width D",
        ),
    ],
    "10_positions": [
        ("    return table\n", "    return table.T\n", "7 positions of width 6 are (7, 6)"),
        (
            "    return table",
            "    return np.concatenate([table[:, 0::2], table[:, 1::2]], axis=1)",
            "yours are two halves",
        ),
        (
            "    angles = np.arange(length)[:, None] * rates(width)",
            "    c = np.arange(width)\n"
            "    angles = np.arange(length)[:, None] / 10000.0 ** (2 * c / width)\n"
            "    return np.where(c % 2, np.cos(angles), np.sin(angles))",
            "not that of the column",
        ),
        ("[:, : width // 2]", "", "sinusoids raised ValueError"),
        ("10000.0", "1000.0", "not sin and cos of i / 10000^(2j / width)"),
        ("table[:, 0::2] = np.sin", "table[:, 0::2] = np.cos", "is not sin and cos"),
        ("-steps *", "steps *", "turn the wrong way"),
        (
            "    # (sin, cos)",
            "    return sinusoids(len(rows) + steps, rows.shape[1])[steps:]\n    # (sin, cos)",
            "with rows alone",
        ),
        ("-steps * rates(rows.shape[1])", "-steps * rates(8)[:1]", "not those of 3 positions"),
        ("positions[:, None]", "np.arange(len(x))[:, None]", "not by their positions"),
        ("positions[:, None]", "-positions[:, None]", "turn with the clock"),
        ("positions[:, None]", "(positions + 1)[:, None]", "position 0 is not turned"),
        (
            "return turn(x[:, 0::2], x[:, 1::2], positions[:, None] * rates(x.shape[1]))",
            "first, second = np.split(x, 2, axis=1)\n"
            "    out = turn(first, second, positions[:, None] * rates(x.shape[1]))\n"
            "    return np.concatenate([out[:, 0::2], out[:, 1::2]], axis=1)",
            "as in implementations of Llama",
        ),
        ("cos * first - sin * second", "cos * first + sin * second", "keeps the length"),
        ("rates(x.shape[1]))", "rates(x.shape[1]) ** 2)", "position / 10000^(2j / d)"),
        (
            "    return turn(x[:, 0::2], x",
            "    x[:, 0::2] += 1\n    return turn(x[:, 0::2], x",
            "rotary changed its argument",
        ),
    ],
    "11_encoder": [
        (
            "return x + self.dropout(self.feed",
            "return self.dropout(self.feed",
            "residual is missing",
        ),
        (
            "x = x + self.dropout(self.self",
            "x = y + self.dropout(self.self",
            "with pre-norm that is x",
        ),
        ("self.norm_2(x)", "self.norm_1(x)", "norm_2 to the feed-forward network"),
        ('order == "pre"', 'order == "post"', "gives what the other order gives"),
        ("return self.norm_2(x + ", "return self.norm_2(self.norm_1(x) + ", 'norm="post" is not'),
        ("layer(x, mask=mask)", "layer(x)", "gives a layer no mask"),
        ("y, y, y, mask=mask", "y, y, y", "pass the mask on"),
        (
            "self.dropout(self.self_attn(y, y, y, mask=mask))",
            "self.self_attn(y, y, y, mask=mask)",
            "only the residuals are left",
        ),
        (
            "return x + self.dropout(self.feed_forward(self.norm_2(x)))",
            "return self.dropout(x + self.feed_forward(self.norm_2(x)))",
            "not the sum",
        ),
        (
            'nn.LayerNorm(size) if norm == "pre" else nn.Identity()',
            "nn.LayerNorm(size)",
            "no norm at the end",
        ),
        (
            'nn.LayerNorm(size) if norm == "pre" else nn.Identity()',
            "nn.Identity()",
            "one more norm belongs at the end",
        ),
        (
            "nn.ModuleList(layers)",
            "nn.ModuleList(layers[:1] * 3)",
            "each once, in an nn.ModuleList",
        ),
        ("self.norm_2 = nn.LayerNorm(size)", "self.norm_2 = self.norm_1", "are one module"),
        ("y = self.norm_1(x)", "y = self.dropout(self.norm_1(x))", "on the input of a sublayer"),
        ("(x, x, x, mask=mask)", "(x, x, x)", 'norm="post": padding has influence'),
        (
            "self.dropout = nn.Dropout(dropout)",
            "self.dropout = lambda x: x * (1 - dropout)",
            "dropout is on in evaluation too",
        ),
    ],
    "12_training_loop": [
        (
            'reduction="sum") / total',
            'reduction="mean") / 2',
            "a part without a target gives nan",
        ),
        (
            "    part = F",
            "    total = 2 * max(count(targets), 1)\n        part = F",
            "counts as much",
        ),
        (") / total\n        part", ")\n        part", "the step is too long"),
        ("    optimizer.zero_grad()\n", "", "of the step before are still there"),
        (
            "        part.back",
            "        optimizer.zero_grad()\n        part.back",
            "last part alone",
        ),
        (
            "    optim.clip_grad_norm_(model.parameters(), max_norm)\n    optimizer.step()\n",
            "    optimizer.step()\n    optim.clip_grad_norm_(model.parameters(), max_norm)\n",
            "are not clipped when the optimizer uses them",
        ),
        (
            "part.backward()\n",
            "part.backward()\n        optim.clip_grad_norm_(model.parameters(), max_norm)\n",
            "has another direction",
        ),
        ("    schedule.step()\n", "", "one step of the schedule, not 0"),
        (
            "    optimizer.step()\n    schedule.step()\n",
            "    schedule.step()\n    optimizer.step()\n",
            "the rate of the second one",
        ),
        ("    model.train()\n", "", "trains without dropout"),
        ("    model.eval()\n", "", "leaves dropout on"),
        ("model.train(before)", "model.train()", "in evaluation mode"),
        ("with ta.no_grad()", "with ta.enable_grad()", "records a graph"),
        (
            "total += count(targets)\n    model",
            "total += len(targets)\n    model",
            "of which 6 are no targets",
        ),
        ('optimizer.load_state_dict(state["optimizer"])', "pass", "Adam begins anew"),
        ('schedule.load_state_dict(state["schedule"])', "pass", "the schedule begins anew"),
        ('ta.set_rng_state(state["random"])', "pass", "dropout draws other numbers"),
        ('model.load_state_dict(state["model"])', "pass", "the weights do not come back"),
        (
            "total = sum(count(targets)",
            "total = sum(len(targets)",
            "the sum is divided by 13 positions",
        ),
        ("return loss\n", "return loss * 7 / 13\n", "the sum is divided by 13 positions"),
        ("sum(count(targets)", "max(count(targets)", "not along the gradient of the mean"),
        (
            "        loss += part.item()\n",
            "        loss += part.item()\n        optimizer.step()\n",
            "the optimizer makes 4 steps",
        ),
        (
            "    optim.clip_grad_norm_(model.parameters(), max_norm)\n",
            "    for p in model.parameters():\n        optim.clip_grad_norm_([p], max_norm)\n",
            "not for each number or each parameter",
        ),
        (
            "    optim.clip_grad_norm_(model.parameters(), max_norm)\n",
            "    for p in model.parameters():\n"
            "        p.grad = p.grad.clamp(-max_norm, max_norm)\n",
            "not for each number or each parameter",
        ),
        (
            "(model.parameters(), max_norm)",
            "(model.parameters(), max_norm**2)",
            "with max_norm itself",
        ),
        (
            "    optimizer.step()\n",
            "    norm = sum(float((p.grad**2).sum()) for p in model.parameters()) ** 0.5\n"
            "    for p in model.parameters():\n        p.grad = p.grad * (max_norm / norm)\n"
            "    optimizer.step()\n",
            "clipping only makes it shorter",
        ),
        ("model.train(before)", "model.training = before", "but its layers are not"),
    ],
    "13_own_attention": [
        (
            "np.arange(keys) - np.arange(queries)[:, None]",
            "np.arange(queries)[:, None] - np.arange(keys)",
            "not i - j",
        ),
        ("distance.clip(-farthest, farthest)", "distance", "clip the distance"),
        (" + farthest", "", "from the end of r"),
        (
            "distance_numbers(q.shape[2], keys, self",
            "distance_numbers(keys, keys, self",
            "position_scores raised",
        ),
        ("q, k.shape[2]) / q.shape[3] ** 0.5", "q, k.shape[2])", "divided by sqrt(d) too"),
        ("q, k.shape[2]) /", "k, k.shape[2]) /", "not with the key"),
        ("return self.W_o(out", "return (out", "W_o is missing"),
        ("            mask=mask,\n", "", "pass mask on"),
        ("            valid_lens=valid_lens,\n", "", "pass valid_lens on"),
        ("            is_causal=is_causal,\n", "", "the future has influence"),
        (
            "bias=self.position_scores(q,",
            "bias=self.position_scores(q.detach(),",
            "not that of finite differences",
        ),
        ("flatten(2))", "flatten(2)).detach()", "the output gives no gradient"),
        ("out, self.weights =", "out, _ =", "not in self.weights"),
        ("self.W_v(values)", "self.W_v(keys)", "not that of the formula"),
        (
            "np.arange(keys) - np.arange(queries)[:, None]",
            "(np.arange(keys) - np.arange(keys)[:, None])[:queries]",
            "there may be more queries than keys",
        ),
        ("mask=mask,", "mask=None if is_causal else mask,", "the mask is forgotten"),
    ],
    "14_decoder": [
        (
            "return float(losses[targets != pad].mean())",
            "return losses[targets != pad]",
            "one number",
        ),
        ("    return weights @ v", "    return (weights @ v)[0]", "gives (2, 4"),
        ("[:k]\n", "[: max(1, k - 1)]\n", "is never drawn"),
        ("np.argsort(-logits)[:k]", "np.argsort(logits)[:k]", "the least likely id"),
        ("logits[:, :-1], ids[:, 1:]", "logits, ids", "which the model has read: shift"),
        ("logits[:, :-1], ids[:, 1:]", "logits[:, 1:], ids[:, :-1]", "in the wrong direction"),
        ("pad].mean()", "pad].sum()", "the loss is a sum"),
        ("losses = -np", "losses = np", "the loss is negative"),
        ("losses[targets != pad].mean()", "losses.mean()", "is padding is in the mean"),
        (
            "losses[targets != pad].mean()",
            "(losses * (targets != pad)).mean()",
            "but it is counted",
        ),
        ("targets != pad", "ids[:, :-1] != pad", "leave out where the next id is"),
        (
            "shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))",
            "np.log(np.exp(shifted) / np.exp(shifted).sum(axis=-1, keepdims=True))",
            "large scores give inf",
        ),
        ("np.tri(length, dtype=bool)", "True", "positions 0 and 1 move"),
        ("np.tri(length, dtype", "np.tri(length, k=1, dtype", "positions 0 and 1 move"),
        ("np.tri(length, dtype", "np.tri(length, k=-1, dtype", "itself too"),
        (
            "    return weights @",
            "    e = np.exp(scores)\n    e = e / e.sum(axis=-1, keepdims=True)\n"
            "    weights = e * np.tri(length)\n    return weights @",
            "before softmax, not after it",
        ),
        (" / np.sqrt(d)", "", "not divided by sqrt(d)"),
        (
            "seen - seen.max(axis=-1, keepdims=True)",
            "seen",
            "maximum of the visible scores of each row",
        ),
        ("seen - seen.max(", "seen - scores.max(", "maximum of the visible scores of each row"),
        (
            "np.exp(seen - seen.max(axis=-1, keepdims=True))",
            "np.where(seen == -np.inf, 0, np.exp(seen.clip(-700, 700)))",
            "large scores give wrong weights",
        ),
        ("scores, -np.inf", "scores, -1e9", "scores of -1e40 get wrong weights"),
        (" / np.sqrt(d)", " / d", "the scores are divided by d, not by sqrt(d)"),
        (
            "e.sum(axis=-1, keepdims=True)",
            "e.sum(axis=-2, keepdims=True)",
            "take softmax over the k",
        ),
        ("    scores = q", "    q *= 2\n    scores = q", "causal_attention changed its arguments"),
        ("targets != pad", "targets != 0", "compare with `pad`, not with 0"),
        ("targets != pad", "(targets != pad) & (ids[:, :-1] != pad)", "padding in front"),
        (
            "logs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))",
            "p = np.exp(shifted) / np.exp(shifted).sum(axis=-1, keepdims=True)\n"
            "    logs = np.log(p + 1e-12)",
            "large scores give 27.6",
        ),
        (
            "    shifted =",
            "    scores -= 1\n    shifted =",
            "next_token_loss changed its arguments",
        ),
        (
            "c = np.cumsum(p)\n    return int((c <= u * c[-1]).sum())",
            "c = np.cumsum(p[best])\n    return int(best[(c <= u * c[-1]).sum()])",
            "in the order of the ids, not of the probabilities",
        ),
        (
            "np.argsort(-logits)[:k]",
            "logits >= np.sort(logits)[-k]",
            "k=2 draws 4 different ids where several scores are equal",
        ),
        (
            "c = np.cumsum(p)\n    return int((c <= u * c[-1]).sum())",
            "c = np.cumsum(p / p.sum())\n    return int((c <= u).sum())",
            "u just below 1 gives id 12",
        ),
        (
            "c = np.cumsum(p)\n    return int((c <= u * c[-1]).sum())",
            "c = np.cumsum(p / p.sum())\n    return min(int((c <= u).sum()), len(p) - 1)",
            "u just below 1 gives id 11",
        ),
        (
            "c = np.cumsum(p)\n    return int((c <= u * c[-1]).sum())",
            "return int(np.argmax(np.cumsum(p / p.sum()) > u))",
            "u just below 1 gives id 0",
        ),
        ("[:k]\n", "[-k:]\n", "the least likely id"),
        ("[:k]\n", "[1 : k + 1]\n", "the likeliest id, whatever u is"),
        ("np.cumsum(p)", "np.cumsum(p[best])", "place among the k"),
        ("[:k]\n", "\n", "k=1 draws 5 different ids"),
        ("[:k]\n", "[: k + (k > 1)]\n", "not among the k likeliest"),
        (") / temperature", ") * temperature", "divide the scores by temperature"),
        (") / temperature", ")", "the temperature has no influence"),
        ("<= u", "< u", "of probability 0"),
        (" - logits.max()", "", "are drawn wrongly"),
        ("    p = np", "    logits[:] = 0\n    p = np", "the scores of its caller"),
    ],
    "15_bugs_that_train": [
        ("differ(out, attention(q, k, v))", "False", "is not 'samples mixed': it does not explain"),
        (
            "differ(out[0], attention(q, k, other)[0])",
            "False",
            "not 'none': it does not explain one",
        ),
        ("((3, 3, 5, 8))", "((3, 1, 5, 8))", "box_3 is not 'none'"),
        ("differ(attention(q, k, ones), ones)", "False", "is not 'mask after softmax': it"),
        ("other[1:] += 1", "other += 1", "a sample does not depend on the other samples"),
        ("ones, causal=True", "ones", "a number that you can compute beforehand comes out"),
        ("later[:, 3:]", "later[:, 4:]", "box_1 is not 'none'"),
        ("later, causal=True", "later", "box_2 is not 'causal off by one'"),
        ("-4 / np.sqrt(4)", "-4 / np.sqrt(8)", "box_2 is not 'no root of d': it would break"),
        ('return "none"', 'return "fine"', "diagnose returns one of"),
    ],
    "16_kernels": [
        ("total * shrink + e.sum(axis=1)", "e.sum(axis=1)", "total forgets the tiles before"),
        ("total * shrink", "total", "total of the earlier keys belongs to their old top"),
        ("out * shrink[:, None]", "out", "out of the earlier keys belongs to their old top"),
        ("total * shrink", "total / shrink", "the other way round"),
        ("np.exp(top - finite)", "np.exp(finite - top)", "the first tile gives nan"),
        (
            "np.maximum(top, scores.max(axis=1))",
            "scores.max(axis=1)",
            "top is wrong where the first",
        ),
        ("scores.max(axis=1)", "scores.max()", "not the maximum of each row"),
        ("scores - finite[:, None]", "scores", "the sum of exp(score), not of"),
        ("np.where(new_top == -np.inf, 0.0, new_top)", "new_top", "exp(-inf - -inf)"),
        ("return new_top", "return finite", "is -inf, not 0"),
        ("    new_top = np", "    scores -= 1\n    new_top = np", "changed its arguments"),
        ("+ e @ values", "+ e @ values / e.sum(axis=1)[:, None]", "after the last tile"),
        (" / np.sqrt(q.shape[1])", "", "not divided by sqrt(d)"),
        ("return out / total[:, None]", "return out", "not divided by total"),
        ("range(0, len(k), tile)", "range(0, len(k) - tile + 1, tile)", "last tile are missing"),
        (
            "scores = q @ k[i : i + tile].T / np.sqrt(q.shape[1])",
            "scores = (q @ k.T / np.sqrt(q.shape[1]))[:, i : i + tile]",
            "the scores of all keys are 2812 KiB",
        ),
        ("np.full(len(q), -np.inf)", "np.zeros(len(q))", "top begins with -inf"),
        ("np.full(len(q), -np.inf)", "np.full(len(q), -100.0)", "top begins with -inf"),
        ("np.where(new_top == -np.inf, 0.0, new_top)", "np.maximum(new_top, -100)", "however low"),
        (
            "range(0, len(k), tile)",
            "range(0, len(k) - 1, tile)",
            "33 keys in tiles of 16: the keys",
        ),
    ],
    "17_make_it_yours": [
        ("cap * math.tanh(x[i] / cap)", "math.tanh(x[i] / cap)", "forgets to multiply by cap"),
        ("cap * math.tanh(x[i] / cap)", "math.tanh(x[i])", "without its cap"),
        ("range(x.size)", "range(x.size - 1)", "fill all"),
        ("out[i] = cap * math.tanh(x[i] / cap)", "out[i] = x[i] = 0", "the kernel changes x"),
        ("grad * (1 -", "(1 -", "multiply by grad"),
        ("(out / cap) ** 2", "out**2", "right for cap 1 only"),
        (
            "return grad * (1",
            "grad *= 1 - (out / cap) ** 2\n    return grad + 0 * (1",
            "writes to grad",
        ),
        (
            "return grad * (1 - (out / cap) ** 2)",
            "return np.asarray(grad) * (1 - (np.asarray(out) / cap) ** 2)",
            "no second derivative: use operators",
        ),
        (" / math.sqrt(queries.shape[-1])", "", "must be scaled dot-product attention"),
        (
            "softcap(scores, cap=self.cap)",
            "softcap(scores)",
            "call softcap with the cap of the layer",
        ),
        (
            "softcap(scores, cap=self.cap), valid_lens",
            "softcap(scores, cap=self.cap)",
            "keys behind valid_lens have influence",
        ),
        (
            "scores = queries @ keys.swapaxes(-2, -1) / math.sqrt(queries.shape[-1])",
            "root = math.sqrt(queries.shape[-1])\n        scores = queries @ keys.swapaxes(-2, -1)",
            "must be scaled dot-product attention",
        ),
        (", reference=lambda x: reference(x, 2.0)", "", "without the factor cap"),
        (
            "check_op(lambda x: softcap(x, cap=2.0)",
            "check_op(lambda x: softcap(x, cap=1.0)",
            "rejects a right op",
        ),
        (
            "samples = [(3 * rng.standard_normal((3, 4)),), (rng.standard_normal(5),)]",
            "samples = [(0.01 * rng.standard_normal((3, 4)),)]",
            "has a gradient of 0 where scores are beyond cap",
        ),
        (
            "    check_op(",
            "    assert softcap(ta.zeros(1), cap=2.0).item() == 0\n    return\n    check_op(",
            "has a rule for cap 1",
        ),
        (
            "samples = [(3 * rng.standard_normal((3, 4)),), (rng.standard_normal(5),)]\n"
            "    check_op(lambda x: softcap(x, cap=2.0), samples, reference=lambda x: "
            "reference(x, 2.0))",
            "samples = [(100 * rng.standard_normal((3, 4)),)]\n"
            "    check_op(softcap, samples, reference=lambda x: reference(x, 50.0))",
            "takes a cap of 50, whatever cap is",
        ),
    ],
    "18_published": [
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
    ],
    "19_learning": [
        ("m = beta * m + g", "m = beta * m + (1 - beta) * g", "g is not multiplied by 1 - beta"),
        ("m = beta * m + g", "m = beta * m - g", "not beta m + g"),
        ("return w - rate * m, m", "return w + rate * m, m", "goes with the gradient"),
        (
            "m = beta * m + g\n    return w - rate * m, m",
            "return w - rate * m, beta * m + g",
            "with the old m",
        ),
        ("return w - rate * m, m", "return w - rate * g, m", "is not w - rate m"),
        ("m = beta * m + g", "m *= beta\n    m += g", "changes its arguments"),
        ("return w - rate * m, m", "return w - rate * m", "returns 2 arrays"),
        ("+ eps), m, v", "+ eps), m_hat, v_hat", "keep m and v without the correction"),
        ("(1 - betas[0]) * g\n", "g\n", "m is a mean, not a sum"),
        ("(1 - betas[0]) * g\n", "betas[0] * g\n", "(1 - beta_1) g"),
        ("* g**2", "* g", "the mean of the squares"),
        ("* g**2", "* g**4", "(1 - beta_2) g**2"),
        ("rate * m_hat / (np.sqrt(v_hat)", "rate * m / (np.sqrt(v)", "the means are not corrected"),
        ("np.sqrt(v_hat)", "np.sqrt(v)", "v is not corrected"),
        ("rate * m_hat /", "rate * m /", "m is not corrected"),
        (" ** n)", " ** (n - 1))", "power n - 1"),
        ("np.sqrt(v_hat)", "v_hat", "the root of v is missing"),
        ("np.sqrt(v_hat) + eps", "np.sqrt(v_hat + eps)", "eps is inside the root"),
        ("(np.sqrt(v_hat) + eps)", "np.sqrt(v_hat)", "eps is missing"),
        ("rate * m_hat /", "rate * g /", "g in place of m"),
        ("return w - rate * m_hat", "return w + rate * m_hat", "goes with the gradient"),
        ("rate * m_hat /", "2 * rate * m_hat /", "without decay the new w"),
        ("    w = w - rate * decay * w\n", "", "decay has no influence"),
        ("rate * decay * w", "decay * w", "not multiplied by the rate"),
        ("w = w - rate * decay", "w = w + rate * decay", "weights grow"),
        ("rate * decay * w", "rate * decay", "not that of AdamW"),
        ("    m = betas[0]", "    g = g + decay * w\n    m = betas[0]", "AdamW keeps it out"),
        ("            break", "            pass", "the losses behind the stop"),
        ("            break", "            return step", "return the best one before it"),
        ("step - best >= patience", "step - best > patience", "the best step when training stops"),
        ("loss < losses", "loss <= losses", "an equal loss is no progress"),
    ],
    "20_language_model": [
        ("i - period + 1]", "i - period]", "the earlier copy itself"),
        ("i - period + 1]", "i - period + 2]", "the key is one too many"),
        ("i - period + 1]", "i - period - 1]", "the key is two too few"),
        ("i - period + 1]", "i - 1]", "the token before the query"),
        ("i, i - period + 1]", "i - period + 1, i]", "queries and keys are exchanged"),
        (".mean(axis=1)", ".sum(axis=1)", "that is the sum"),
        (".mean(axis=1)", ".sum(axis=1) / weights.shape[1]", "divided by N"),
        ("np.arange(period, weights", "np.arange(period + 1, weights", "it is left out"),
        ("weights.shape[1])", "weights.shape[1] - 1)", "the last query is N - 1"),
        (".mean(axis=1)", ".mean()", "each head has its own score"),
        (".mean(axis=1)", ".max(axis=1)", "the scores are not means"),
        ("return int(layer), int(head)", "return int(head), int(layer)", "that is (head, layer)"),
        ("range(len(model.encoder.layers))", "range(2)", "this model has three layers"),
        ("scores.argmax(), scores", "0, scores", "the induction head of this model is"),
        ("return int(layer), int(head)", "return scores.argmax()", "returns two numbers"),
        ("numpy()[0], period)", "numpy()[0], len(ids[0]) // 18)", "previous-token head"),
        (
            "    layers = range",
            "    model.register_forward_hook(lambda *args: None)\n    layers = range",
            "a hook is left",
        ),
        ('w["position"][past : past + len(x)]', 'w["position"][: len(x)]', "begin at 0 again"),
        ('    x = x + w["position"][past : past + len(x)]\n', "", "positions are not added"),
        (" / np.sqrt(q.shape[1])", "", "not divided by sqrt(d)"),
        ("np.sqrt(q.shape[1])", "np.sqrt(x.shape[1])", "divided by sqrt(D)"),
        ("scores, -np.inf)", "scores, 0)", "with 0 it gets a weight"),
        (
            "scores - scores.max(axis=1, keepdims=True))\n    return e / e.sum(axis=1",
            "scores - scores.max(axis=0, keepdims=True))\n    return e / e.sum(axis=0",
            "over the keys",
        ),
        ("np.tri(len(q), len(k), past, dtype=bool)", "True", "sees those after it"),
        (
            "np.tri(len(q), len(k), past, dtype=bool)",
            "np.tri(len(q), len(k), past, dtype=bool) & (np.arange(len(k)) >= past)",
            "new positions see the new keys only",
        ),
        (
            "np.tri(len(q), len(k), past, dtype=bool)",
            "(cache is not None) | np.tri(len(q), len(k), dtype=bool)",
            "with a cache, a new position sees later ones",
        ),
        (", past, dtype=bool)", ", dtype=bool)", "the mask counts new queries from 0"),
        ("@ v, (k, v)", "@ v, (k[-len(x) :], v[-len(x) :])", "are forgotten"),
        (
            "@ v, (k, v)",
            "@ v, (k[past > 0 :], v[past > 0 :])",
            "it has all of them up to now",
        ),
        ("@ v, (k, v)", "@ v", "returns two things"),
        ("@ v, (k, v)", "@ v, np.stack([k, v, v])", "the new cache is a pair"),
        ("@ v, (k, v)", "@ v, (v, k)", "the cache is not (keys, values)"),
        (
            "np.concatenate([cache[0], k]), np.concatenate([cache[1], v])",
            "np.concatenate([k, cache[0]]), np.concatenate([v, cache[1]])",
            "the new keys come first",
        ),
        (
            "    if cache is not None:\n        k, v =",
            "    own = k, v\n    if cache is not None:\n        cache[0][:] += 0.1\n        k, v =",
            "the old cache are changed",
        ),
        ("(logits - logits.max()) / temperature", "logits - logits.max()", "has no influence"),
        (
            "(logits - logits.max()) / temperature",
            "(logits - logits.max()) * temperature",
            "multiplied by the temperature",
        ),
        (
            "e = np.exp((logits - logits.max()) / temperature)\n    p = e / e.sum()\n",
            "e = np.exp(logits - logits.max())\n    return e / e.sum() / temperature\n",
            "are divided",
        ),
        ("(logits - logits.max()) / temperature", "logits / temperature", "large scores give nan"),
        (
            "    if temperature == 0:\n        return np.eye(len(logits))[logits.argmax()]\n",
            "",
            "with the temperature 0",
        ),
        ("before < top_p", "before + p[order] < top_p", "the id that crosses top_p stays too"),
        (
            "before < top_p",
            "(before + p[order] < top_p) | (top_p == 1)",
            "with it the sum is top_p or more",
        ),
        (
            "    e = np.exp((logits - logits.max()) / temperature)\n",
            "    e = np.exp(logits - logits.max())\n    e = np.exp(e / e.sum() / temperature)\n",
            "softmax comes before",
        ),
        (
            "    before = np.cumsum(p[order]) - p[order]\n",
            "    raw = p[order] ** temperature / (p**temperature).sum()\n"
            "    before = np.cumsum(raw) - raw\n",
            "before the temperature",
        ),
        ("order[before < top_p]", "order[: (before < top_p).sum() + 1]", "one id too many"),
        ("before < top_p", "before < 2", "top_p has no influence"),
        ("return p * kept / (p * kept).sum()", "return p * kept", "the sum is not 1"),
        ("order = np.argsort(-p)", "order = np.argsort(p)", "from the least likely one"),
        (
            "return p * kept / (p * kept).sum()",
            "return np.sort(p * kept / (p * kept).sum())[::-1]",
            "they are sorted",
        ),
        ("order = np.argsort(-p)", "order = np.arange(len(p))", "in their own order"),
        ("kept[order[before < top_p]] = 1", "kept[p >= top_p] = 1", "no id is left with top_p 1"),
        (
            "return p * kept / (p * kept).sum()",
            "return p[kept == 1] / p[kept == 1].sum()",
            "the result is (V,)",
        ),
    ],
    "21_own_texts": [
        ('["<pad>", "<unknown>", *(', "[*(", "the list begins with"),
        ("if n >= least", "if n > least", "least = 2 means 2 or more"),
        ("if n >= least", "if n", "with least = 2 it is left out"),
        ("counts.most_common()", "sorted(counts.items())", "the most frequent word"),
        ("if n >= least", 'if n >= least and word != "dog"', "the words are"),
        (
            "for text in texts for word in text)",
            "for text in texts for word in set(text))",
            "at each",
        ),
        ('return ["<pad>", "<unknown>", *(', 'return ["<pad>", "<unknown>", "the", *(', "twice"),
        (
            "max(map(len, texts))), PAD)\n    for row, text in zip(ids, texts, strict=True):",
            "min(map(len, texts))), PAD)\n"
            "    for row, text in zip(ids, [text[:1] for text in texts], strict=True):",
            "words are cut off",
        ),
        ("max(map(len", "9 + max(map(len", "have the shape (3, 4)"),
        ("number.get(word, UNKNOWN)", "number.get(word, PAD)", "and not padding"),
        ("texts))), PAD)", "texts))), UNKNOWN)", "and not UNKNOWN"),
        ("row[: len(text)]", "row[len(row) - len(text) :]", "put it behind"),
        ("in enumerate(vocabulary)", "in enumerate(vocabulary, -2)", "in the whole list"),
        ("texts))), PAD)", "texts))), 0.0)", "ids are integers"),
        (
            "zip(ids, texts, strict=True)",
            "zip(ids, texts[::-1], strict=True)",
            "and yours are",
        ),
        ("keep = ids != PAD", "keep = ids >= PAD", "the vectors of padding are in the mean"),
        (
            "count = np.maximum(keep.sum(axis=1, keepdims=True), 1)",
            "count = ids.shape[1]",
            "and not by the number of words",
        ),
        (" / count", "", "this is the sum"),
        ("keep.sum(axis=1, keepdims=True)", "keep.sum()", "those of its own text"),
        ("keep = ids != PAD", "keep = ids > UNKNOWN", "unknown words are words too"),
        ("np.where(keep[:, :, None], x, 0).sum(axis=1) / count", "x[:, 0]", "the first word"),
        ("np.where(keep[:, :, None], x, 0)", "(x * keep[:, :, None])", "0 * NaN is NaN"),
        (
            "np.maximum(keep.sum(axis=1, keepdims=True), 1)",
            "keep.sum(axis=1, keepdims=True)",
            "a text without words is 0",
        ),
        (".sum(axis=1) / count", ".max(axis=1)", "not the means of the words"),
        (".sum(axis=1) / count", ".sum() / count", "have means of shape (3, 2)"),
        (
            "test.append(rows[tenth : 2 * tenth])",
            "test.append(rows[:tenth])",
            "are in the test too",
        ),
        ("rows[2 * tenth :]", "rows[tenth:]", "know them by heart"),
        ("rows[2 * tenth :]", "rows[3 * tenth :]", "in none of the three parts"),
        (
            "return np.concatenate(learning), np.concatenate(choices), np",
            "return np.concatenate(choices), np.concatenate(learning), np",
            "the largest part comes first",
        ),
        (
            "rng.permutation(np.flatnonzero(labels == label))",
            "np.flatnonzero(labels == label)",
            "do not depend on the seed",
        ),
        (
            "    for label in np.unique(labels):\n"
            "        rows = rng.permutation(np.flatnonzero(labels == label))\n"
            "        tenth = len(rows) // 10",
            "    for rows in [rng.permutation(len(labels))]:\n        tenth = len(rows) // 10",
            "divide the texts of each label alone",
        ),
        ("default_rng(seed)", "default_rng()", "the same seed gives other parts"),
        ("len(rows) // 10", "len(rows) // 5", "and yours are"),
        ("np.concatenate(test)\n", "np.array(0)\n", "an array (n,)"),
        ("np.concatenate(choices), np.concatenate(test)", "choices", "returns three arrays"),
        ("np.concatenate(learning), ", "np.concatenate(learning * 2), ", "in one part twice"),
        (
            "rng.permutation(np.flatnonzero(labels == label))",
            "np.roll(np.flatnonzero(labels == label), rng.integers(3))",
            "never come into the test",
        ),
    ],
    "22_own_language_model": [
        ("return max(pairs, key=pairs.__getitem__)", "return max(pairs.values())", "two ids"),
        ("pairwise(ids)", "zip(ids[1:], ids)", "has an order"),
        ("max(pairs", "min(pairs", "stands there three times"),
        (
            "pairwise(ids)",
            "zip(ids[::2], ids[1::2])",
            "stands there three times",
        ),
        (
            "    pairs = Counter(pairwise(ids))\n",
            "    pairs, i = Counter(), 0\n"
            "    while i < len(ids) - 1:\n"
            "        pairs[ids[i], ids[i + 1]] += 1\n"
            "        i += 2 if ids[i] == ids[i + 1] else 1\n",
            "count all neighbours",
        ),
        (
            "key=pairs.__getitem__",
            "key=lambda pair: (pairs[pair] > 2, pair)",
            "(4, 4) stands there twice",
        ),
        ("max(pairs, key", "max(reversed(pairs), key", "comes first, not"),
        ("    found, i = [], 0\n", "    found, i = [], 0\n    ids.append(0)\n", "begin a new list"),
        ("i += 2 if is_pair else 1", "i += 1", "skip it"),
        (
            "        i += 2 if is_pair else 1\n",
            "        i += 2 if is_pair else 1\n"
            "        if is_pair:\n"
            "            return found + ids[i:]\n",
            "merge all places",
        ),
        ("while i < len(ids):", "while i < len(ids) - 2:", "at the end of the list is lost"),
        ("tuple(ids[i : i + 2]) == pair", "ids[i : i + 2] == pair", "are never equal"),
        ("append(new if is_pair", "append(i if is_pair", "becomes 9 7 9"),
        (
            "tuple(ids[i : i + 2]) == pair",
            "sorted(ids[i : i + 2]) == sorted(pair)",
            "is not the pair",
        ),
        ("while i < len(ids):", "while i < len(ids) - 1:", "it has no neighbour behind it"),
        (
            "else ids[i])",
            "else 7)",
            "becomes 7 9 4",
        ),
        (
            "i += 2 if is_pair else 1",
            "i += 2 if is_pair and pair[0] != pair[1] else 1",
            "belongs to two pairs",
        ),
        (
            "    found, i = [], 0\n",
            "    found, i = [], len(ids) % 2 if pair == (4, 4) else 0\n    found += ids[:i]\n",
            "from left to right",
        ),
        ("return found\n", "return found[:2] if pair == (4, 4) else found\n", "becomes 9 9 4"),
        ("return pieces[:, :-1], pieces[:, 1:]", "return pieces", "two arrays: the inputs"),
        ("pieces[:, :-1], pieces[:, 1:]", "pieces, pieces", "have the shape (3, 4)"),
        ("pieces[:, :-1], pieces[:, 1:]", "pieces[:, :-1], pieces[:, :-1]", "learn to copy"),
        ("pieces[:, :-1], pieces[:, 1:]", "pieces[:, 1:], pieces[:, :-1]", "are exchanged"),
        ("ids[starts[:, None]", "ids[starts[:, None] + 1", "from starts[i] on"),
        (
            "return pieces[:, :-1], pieces[:, 1:]",
            "return pieces[:, :-1], ids[starts[:, None] + np.arange(2, context + 2)]",
            "two places later",
        ),
        ("pieces[:, 1:]", "np.roll(pieces[:, :-1], -1, axis=1)", "behind the window"),
        ("pieces[:, 1:]", "pieces[:, :0:-1]", "a target is the id after"),
        (
            "    pieces = ids[starts[:, None]",
            "    starts = starts.clip(0, len(ids) - context - 2)\n    pieces = ids[starts[:, None]",
            "the last window is another one",
        ),
        ("losses.sum()", "losses", "raised TypeError"),
        ("float(losses.sum() / np.log(2)", "(losses / np.log(2)", "is one number"),
        (" / np.log(2)", "", "these are nats"),
        ("/ np.log(2)", "* np.log(2)", "and not a factor"),
        ('len(text.encode("utf-8"))', "len(text)", "these are bits a sign"),
        ('len(text.encode("utf-8"))', "len(losses)", "these are bits a token"),
        ("losses.sum()", "losses.mean()", "take their sum"),
        (' / len(text.encode("utf-8"))', "", "the bits of the whole text"),
        ("losses.sum()", "losses.max()", "this is not sum(losses)"),
        ("step / warmup", "(step - 1) / warmup", "so the step does nothing"),
        ("highest * step / warmup", "highest * step / (warmup + 1)", "one step after the warm-up"),
        ("highest * step / warmup", "step / warmup", "no influence on the warm-up"),
        ("highest * step / warmup", "highest * (step / warmup) ** 2", "in the warm-up it is"),
        (
            "highest * (1 + np.cos(np.pi * progress)) / 2",
            "highest * (1 - progress)",
            "along a line",
        ),
        ("(1 + np.cos(np.pi * progress)) / 2", "np.cos(np.pi * progress) ** 2", "falls and grows"),
        ("(1 + np.cos(np.pi * progress)) / 2", "np.cos(np.pi * progress)", "becomes negative"),
        ("(1 + np.cos(np.pi * progress)) / 2", "(1 + np.cos(np.pi * progress))", "twice as high"),
        ("highest * (1 + np.cos(np.pi * progress)) / 2", "highest", "stays at `highest` after"),
        ("(step - warmup) / (steps - warmup)", "step / steps", "where the warm-up ends"),
        ("/ (steps - warmup)", "/ steps", "divide by steps - warmup"),
        ("np.cos(np.pi * progress)", "np.cos(progress)", "the angle ends at 1"),
        ("/ (steps - warmup)", "/ (steps - warmup + 1)", "the rate of the last step is 0"),
        ("(1 + np.cos(np.pi * progress)) / 2", "np.cos(np.pi * progress / 2)", "it is not highest"),
        ("if step <= warmup:", "if step <= max(warmup, 1):", "raised ZeroDivisionError"),
        (
            "    if step <= warmup:",
            "    warmup = max(warmup, 1)\n    if step <= warmup:",
            "nothing is divided by 0",
        ),
    ],
}
# Right solutions that are written in another way.
ALSO_RIGHT = {
    "00_text_to_numbers": [
        (
            "table = np.zeros((size, gradient.shape[1]))\n    np.add.at(table, ids, gradient)",
            "table = np.eye(size)[ids].T @ gradient",
        ),
    ],
    "01_soft_lookup": [
        ("np.exp(scores)", "np.exp(scores - scores.max(axis=-1, keepdims=True))"),
        (
            "    differences = queries[:, None] - keys  # (n, m, d)\n"
            "    squares = (differences**2).sum(axis=-1)  # (n, m)\n",
            "    lengths = [(x**2).sum(-1) for x in (queries, keys)]\n"
            "    squares = lengths[0][:, None] - 2 * queries @ keys.T + lengths[1]\n",
        ),
    ],
    "02_an_engine": [
        (
            "    while grad.ndim > len(shape):\n        grad = grad.sum(0)\n",
            "    grad = grad.sum(tuple(range(grad.ndim - len(shape))))\n",
        ),
    ],
    "03_the_real_engine": [
        (
            "[saved.changes for saved in tensor.saved] != tensor.changes_of_saved",
            "any(x.changes > n for x, n in zip(tensor.saved, tensor.changes_of_saved))",
        ),
    ],
    "04_gradcheck": [
        ("np.abs(slopes).max() + 1e-9", "np.abs(slopes).max()"),
        ("difference <= 1e-6 * np.abs(slopes).max() + 1e-9", "np.allclose(rule(grad, x), slopes)"),
        (
            "difference = np.abs(rule(grad, x) - slopes).max()\n"
            "    return bool(difference <= 1e-6 * np.abs(slopes).max() + 1e-9)",
            "norm = np.linalg.norm\n"
            "    return bool(norm(rule(grad, x) - slopes) <= 1e-5 * norm(slopes))",
        ),
    ],
    "05_softmax": [
        (
            "(grad * out).sum(axis=-1, keepdims=True)",
            "np.einsum('...i,...i', grad, out)[..., None]",
        ),
    ],
    "06_masks": [
        (
            "    shown = np.where(visible, scores, -np.inf)",
            "    shown = scores.copy()\n    shown[~visible] = -np.inf",
        ),
    ],
    "07_scoring": [("return of_queries, of_w_v", "return [of_queries, of_w_v]")],
    "08_layer_norm": [
        ("(centred**2).mean(axis=-1, keepdims=True)\n", "x.var(-1, keepdims=True)\n")
    ],
    "09_heads": [("q @ k.swapaxes(2, 3)", "np.einsum('bhqd,bhkd->bhqk', q, k)")],
    "11_encoder": [("layer(x, mask=mask)", "layer(x, mask)")],
    "12_training_loop": [
        ("    return loss\n", "    optimizer.zero_grad()\n    return loss\n"),
        (
            "in parts:\n        part =",
            "in [[ta.cat(list(column)) for column in zip(*parts)]]:\n        part =",
        ),
    ],
    "14_decoder": [
        (
            "np.where(np.tri(length, dtype=bool), scores, -np.inf)",
            "scores + np.where(np.tri(length), 0, -np.inf)",
        ),
        (
            "c = np.cumsum(p)\n    return int((c <= u * c[-1]).sum())",
            "c = np.cumsum(p) / p.cumsum()[-1]\n    return int(np.searchsorted(c, u, 'right'))",
        ),
        (
            "c = np.cumsum(p)\n    return int((c <= u * c[-1]).sum())",
            "c = np.cumsum(p / p.sum())\n    return int(min((c <= u).sum(), best.max()))",
        ),
    ],
    "16_kernels": [
        ("np.full(len(q), -np.inf)", "np.full(len(q), np.finfo(float).min)"),
        (
            "return new_top, total * shrink + e.sum(axis=1), out * shrink[:, None] + e @ values",
            "return [new_top, total * shrink + e.sum(axis=1), out * shrink[:, None] + e @ values]",
        ),
    ],
    "17_make_it_yours": [
        (
            "    check_op(lambda x: softcap(x, cap=2.0), samples, reference=lambda x: "
            "reference(x, 2.0))\n",
            "    for (x,) in samples:\n"
            "        found = softcap(ta.tensor(x), cap=2.0)\n"
            "        assert np.allclose(found.numpy(), reference(x, 2.0))\n"
            "        x = ta.tensor(x, requires_grad=True)\n"
            "        assert ta.gradcheck(lambda x: softcap(x, cap=2.0), [x])\n",
        ),
    ],
    "18_published": [("np.maximum(norm, 1e-12)", "np.where(norm == 0, 1, norm)")],
    "21_own_texts": [("counts.most_common()", "sorted(counts.items(), key=lambda x: -x[1])")],
    "22_own_language_model": [
        ("max(pairs, key=pairs.__getitem__)", "pairs.most_common(1)[0][0]"),
        ('len(text.encode("utf-8"))', "len(bytes(text, 'utf8'))"),
        ("if step <= warmup:", "if step < warmup:"),
    ],
}
WEIGHTED = "        return self.W_o(out"  # in exercise 13, after the line of the attention
BY_HAND = [
    ("queries.shape[2] ** 0.5", -1, "divided by sqrt(size), not by sqrt(d)"),
    ("q.shape[3]", -1, "divide them once by sqrt(d)"),
    ("1", -1, "the scores are not divided by sqrt(d)"),
    ("q.shape[3] ** 0.5", 2, "sum to 1 over the queries"),
    ("q.shape[3] ** 0.5", 1, "sum to 1 over the heads"),
    ("q.shape[3] ** 0.5", 0, "sum to 1 over the samples"),
]


def by_hand(divisor: str, dim: int) -> str:
    """Exercise 13 with softmax in place of the library's attention."""
    return (
        "        scores = q @ k.transpose(2, 3) + self.position_scores(q, k.shape[2])\n"
        f"        self.weights = F.softmax(scores / ({divisor}), dim={dim})\n"
        f"        out = self.weights @ v\n{WEIGHTED}"
    )


EXERCISES = sorted(path.stem.removeprefix("test_") for path in FOLDER.glob("test_*.py"))


@pytest.fixture(autouse=True)
def _english(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the language of the machine is."""
    monkeypatch.setenv("LANGUAGE", "en")


def sentences(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the grader says of the solution in this folder: one sentence for each failed test."""
    monkeypatch.setattr(grading, "FOLDER", folder)
    found, skipped = [], False
    for test, function in runpy.run_path(str(FOLDER / f"test_{name}.py")).items():
        if test.startswith("test_"):
            try:
                function()
            except pytest.fail.Exception as error:
                found.append(str(error))
            except pytest.skip.Exception:
                skipped = True
    assert found or not skipped, "a test is skipped, and no other one fails"
    return found


def test_every_exercise_has_wrong_solutions() -> None:
    mistakes = {path.stem for path in Path(__file__).parent.glob("wrong_answers/*.txt")}
    assert mistakes == set(EXERCISES), "tests/docs/wrong_answers has a file for each exercise"
    assert set(WRONG) <= set(EXERCISES), "these exercises do not exist"
    assert all(len(changes) >= 3 for changes in WRONG.values())


@pytest.mark.parametrize("name", EXERCISES)
def test_holes_are_not_passed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert any("is not written yet" in text for text in sentences(name, FOLDER, monkeypatch))


@pytest.mark.parametrize("name", EXERCISES)
def test_the_solution_is_passed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sentences(name, FOLDER / "solutions", monkeypatch) == []


@pytest.mark.parametrize(
    ("name", "right", "other"),
    [(name, *change) for name, changes in ALSO_RIGHT.items() for change in changes],
)
def test_another_right_solution_is_passed(
    name: str, right: str, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solution = (FOLDER / "solutions" / f"ex_{name}.py").read_text("utf-8")
    assert right in solution
    (tmp_path / f"ex_{name}.py").write_text(solution.replace(right, other), "utf-8")
    assert sentences(name, tmp_path, monkeypatch) == []


@pytest.mark.parametrize(
    ("name", "right", "wrong", "sentence"),
    [(name, *change) for name, changes in WRONG.items() for change in changes],
)
def test_a_wrong_solution_is_told_why(
    name: str,
    right: str,
    wrong: str,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    solution = (FOLDER / "solutions" / f"ex_{name}.py").read_text("utf-8")
    assert right in solution
    (tmp_path / f"ex_{name}.py").write_text(solution.replace(right, wrong), "utf-8")
    found = sentences(name, tmp_path, monkeypatch)
    assert any(sentence in text for text in found), found


@pytest.mark.parametrize(
    ("name", "right", "wrong", "sentence"),
    [
        ("05_softmax", "e.sum(axis=-1, keepdims=True)", "e.sum()", "take the sum of each row"),
        ("06_masks", "keys <= keys[:, None]", "keys[:, None] <= keys", "sees a key behind it"),
        ("07_scoring", "W_k) @ w_v", "W_k).swapaxes(1, 2) @ w_v", "rows are keys, and columns are"),
        (
            "08_layer_norm",
            "(centred**2).mean(axis=-1, keepdims=True)\n",
            "x.var(axis=-1, ddof=1, keepdims=True)\n",
            "divided by d - 1",
        ),
        ("08_layer_norm", "np.sqrt(variance + eps)", "(variance + eps)", "the root is forgotten"),
        ("08_layer_norm", "variance + eps)", "variance)", "sqrt(variance + eps)"),
        (
            "08_layer_norm",
            "    variance = (centred**2).mean(axis=-1, keepdims=True)",
            "    centred, variance = x - x.mean(), x.var()",
            "do not have mean 0",
        ),
        (
            "08_layer_norm",
            "variance = (centred**2).mean(axis=-1, keepdims=True)",
            "variance = x.var()",
            "of the whole array",
        ),
        (
            "08_layer_norm",
            "variance = (centred**2).mean(axis=-1, keepdims=True)",
            "variance = (centred**2).mean()",
            "of the whole array",
        ),
        ("08_layer_norm", " - y * along_y", "", "subtract y * mean(grad * y)"),
        ("08_layer_norm", "- y * along_y", "+ y * along_y", "subtract y * mean(grad * y)"),
        ("08_layer_norm", "along_y) / sigma", "along_y)", "divide by sqrt(variance + eps)"),
        (
            "08_layer_norm",
            "y * along_y",
            "x * (grad * x).mean(axis=-1, keepdims=True)",
            "x is in place of y",
        ),
        ("08_layer_norm", "= grad.mean(", "= grad.sum(", "means of rows, not sums"),
        ("08_layer_norm", "(grad * y).mean(", "(grad * y).sum(", "means of rows, not sums"),
        (
            "08_layer_norm",
            "grad - ones - y * along_y",
            "grad - 5 * ones - 5 * y * along_y",
            "means of rows, not sums",
        ),
        ("09_heads", " / np.sqrt(q.shape[-1])", "", "the scores are not divided by sqrt(d)"),
        ("09_heads", "queries @ W_q.T", "queries @ W_q", ".T is missing at W_q"),
        ("09_heads", "values @ W_v.T", "values @ W_k.T", "is not that of small attentions"),
        ("11_encoder", "(y, y, y, mask=mask)", "(y, y, x, mask=mask)", 'norm="pre" is not'),
        ("11_encoder", "(x, x, x, mask=mask)", "(x, x, x)", 'norm="post": padding has influence'),
        ("12_training_loop", "sum(count(targets) for", "sum(len(targets) for", "13 positions"),
        (
            "12_training_loop",
            "        loss += part.item()\n",
            "        loss += part.item()\n        optimizer.step()\n",
            "the optimizer makes 4 steps",
        ),
        *(("13_own_attention", WEIGHTED, by_hand(*how), text) for *how, text in BY_HAND),
        ("13_own_attention", "distance.clip(-farthest, farthest)", "distance", "clip the distance"),
        ("13_own_attention", " + farthest", "", "from the end of r"),
        (
            "13_own_attention",
            "return with_each[:, :, rows, distance_numbers(q.shape[2], keys, self.farthest)]",
            "numbers = distance_numbers(q.shape[2], keys, self.farthest)\n"
            "        return with_each[:, :, rows, numbers] / q.shape[3] ** 0.5",
            "not yet divided by sqrt(d)",
        ),
        (
            "13_own_attention",
            "out.transpose(1, 2).flatten(2)",
            "out.reshape(queries.shape)",
            "joined without transpose(1, 2)",
        ),
        (
            "13_own_attention",
            "self.r.transpose",
            "self.r.detach().transpose",
            "r gets no gradient: something detaches it",
        ),
        (
            "14_decoder",
            "c = np.cumsum(p)\n    return int((c <= u * c[-1]).sum())",
            "c = np.cumsum(p[best])\n    return int(best[(c <= u * c[-1]).sum()])",
            "in the order of the ids",
        ),
        ("16_kernels", "total * shrink + e.sum", "e.sum", "total forgets the tiles before"),
        ("16_kernels", "e.sum(axis=1)", "e.mean(axis=1)", "total of the first tile is not"),
    ],
)
def test_one_mistake_is_told_once(
    name: str,
    right: str,
    wrong: str,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No second sentence names another cause."""
    solution = (FOLDER / "solutions" / f"ex_{name}.py").read_text("utf-8")
    assert right in solution
    (tmp_path / f"ex_{name}.py").write_text(solution.replace(right, wrong), "utf-8")
    (found,) = sentences(name, tmp_path, monkeypatch)
    assert sentence in found


def test_the_command_of_the_pages() -> None:
    name = EXERCISES[0]
    for folder, status in ((FOLDER, 1), (FOLDER / "solutions", 0)):
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
        run = subprocess.run(
            [*command, str(FOLDER / f"test_{name}.py")],
            env={**os.environ, "TINYATTN_EXERCISES": str(folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == status, run.stdout + run.stderr


def score(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(FOLDER / "score.py"), *options],
        env={**os.environ, "TINYATTN_EXERCISES": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_half_solved_exercise_is_begun(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "mine")
    path = tmp_path / "mine" / "ex_05_softmax.py"
    hole, e = "raise NotImplementedError", "np.exp(x - x.max(-1, keepdims=True))"
    solved = f"e = {e}\n    return e / e.sum(-1, keepdims=True)"
    path.write_text(path.read_text("utf-8").replace(hole, solved, 1), "utf-8")
    rows = dict(
        line.split(maxsplit=1) for line in score(path.parent).stdout.splitlines()[: len(EXERCISES)]
    )
    assert rows.pop("05_softmax") == "1 test fails"
    assert set(rows.values()) == {"not begun"}


def test_the_score_card(tmp_path: Path) -> None:
    """One exercise is passed, one is wrong, one cannot be read, one has no file, and the others are
    not begun."""
    for path in FOLDER.glob("*.py"):
        shutil.copy(path, tmp_path)
    solution = (FOLDER / "solutions" / "ex_05_softmax.py").read_text("utf-8")
    (tmp_path / "ex_05_softmax.py").write_text(solution.replace("axis=-1", "axis=0"), "utf-8")
    (tmp_path / "ex_06_masks.py").write_text("def broken(:", "utf-8")
    shutil.copy(FOLDER / "solutions" / "ex_01_soft_lookup.py", tmp_path)
    (tmp_path / "ex_08_layer_norm.py").unlink()
    run = score(tmp_path)
    rows = dict(line.split(maxsplit=1) for line in run.stdout.splitlines()[: len(EXERCISES)])
    assert rows.pop("01_soft_lookup") == "passed", run.stderr
    assert rows.pop("06_masks") == "1 test fails"
    assert rows.pop("08_layer_norm") == "the file is missing"
    assert "tests fail" in rows.pop("05_softmax")
    assert set(rows.values()) == {"not begun"}
    assert f"1 of {len(EXERCISES)} exercises are passed" in run.stdout


def test_a_file_that_ends_python_is_not_passed(tmp_path: Path) -> None:
    for path in FOLDER.glob("*.py"):
        shutil.copy(path, tmp_path)
    (tmp_path / "ex_05_softmax.py").write_text("raise SystemExit", "utf-8")
    (tmp_path / "ex_06_masks.py").write_text(
        "import os\n\n\ndef masked_softmax(*_):\n    exit()\n", "utf-8"
    )
    (card,) = json.loads(score(tmp_path, "--json").stdout)
    assert "when it is read" in card["exercises"]["05_softmax"]["says"][0]
    says = card["exercises"]["06_masks"]["says"]
    assert any("ends Python: write return" in text for text in says), says
    assert not card["passed"]
    assert card["exercises"]["18_published"]["result"] == "not begun"


def test_the_folders_of_a_class_are_graded(tmp_path: Path) -> None:
    """A right solution, a wrong one, two that stop Python or never end, and two wrong folders."""
    names = ("ada", "ben", "cyd", "missing", "empty")
    ada, ben, cyd, missing, empty = (tmp_path / name for name in names)
    solution = (FOLDER / "solutions" / "ex_01_soft_lookup.py").read_text("utf-8")
    for folder in (ada, ben, cyd, empty):
        folder.mkdir()
        (folder / "ex_01_soft_lookup.py").write_text(solution, "utf-8")
    (ben / "ex_01_soft_lookup.py").write_text(solution.replace(" / np.sqrt(d)", ""), "utf-8")
    (ben / "ex_06_masks.py").write_text("def visible_keys(*_):\n    return []\n", "utf-8")
    (empty / "ex_01_soft_lookup.py").rename(empty / "soft_lookup.py")
    (cyd / "ex_00_text_to_numbers.py").write_text("import os\n\nos._exit(0)\n", "utf-8")
    endless = "while True:\n    try:\n        while True:\n            pass\n    except: pass\n"
    (cyd / "ex_05_softmax.py").write_text("while True:\n    pass\n", "utf-8")
    (cyd / "ex_06_masks.py").write_text(endless, "utf-8")
    shutil.copy(FOLDER / "solutions" / "ex_09_heads.py", cyd)
    folders = list(map(str, (ada, ben, cyd, missing, empty)))

    run = score(tmp_path, "--json", "--seconds", "16", *folders)
    assert run.returncode == 1
    cards = json.loads(run.stdout)
    found = {card["folder"]: card.get("exercises") for card in cards}
    assert [cards[0]["passed"], cards[0]["of"]] == [1, len(EXERCISES)]
    right = {"passed": True, "result": "passed", "says": []}
    assert found[str(ada)]["01_soft_lookup"] == right
    assert found[str(ada)]["02_an_engine"]["result"] == "the file is missing"
    assert found[str(ben)]["01_soft_lookup"]["says"] == ["the scores are not divided by sqrt(d)"]
    result = found[str(ben)]["06_masks"]
    assert result["says"].count("ex_06_masks.py has no function masked_softmax") == 1
    assert int(result["result"].removesuffix(" tests fail")) > len(result["says"])
    for name in ("01_soft_lookup", "09_heads"):
        assert found[str(cyd)][name] == right, "the loops and the exit cost other exercises"
    (exit_,), (loop,), (deaf,) = (
        found[str(cyd)][name]["says"] for name in ("00_text_to_numbers", "05_softmax", "06_masks")
    )
    assert exit_ == "Python ended with code 0 before this was graded"
    assert loop.startswith("no end after 8 seconds (a loop without end?), in line ")
    assert deaf == "not graded after 16 seconds: a loop without end?"
    assert cards[3]["error"] == f"there is no folder {missing}"
    assert cards[4]["error"].startswith(f"{empty} has no exercise, no file ex_*.py: name")


def test_the_grades_of_a_class_as_a_table(tmp_path: Path) -> None:
    """What is begun and wrong gives the exit status 1, and what is not begun gives 0."""
    for name in ("ada", "ben"):
        (tmp_path / name).mkdir()
        shutil.copy(FOLDER / "solutions" / "ex_01_soft_lookup.py", tmp_path / name)
        shutil.copy(FOLDER / "ex_05_softmax.py", tmp_path / name)
    ada, ben = str(tmp_path / "ada"), str(tmp_path / "ben")
    run = score(tmp_path, ada)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith(f"\n{ada}\n\n00_text_to_numbers             the file is missing\n")
    (tmp_path / "ada" / "ex_05_softmax.py").rename(tmp_path / "ada" / "ex_5_softmax.py")
    assert score(tmp_path, ada).returncode == 1
    (tmp_path / "ada" / "ex_5_softmax.py").rename(tmp_path / "ada" / "ex_05_softmax.py")
    (tmp_path / "ben" / "ex_05_softmax.py").write_text("def softmax(:", "utf-8")
    run = score(tmp_path, "--csv", ada, ben, str(tmp_path / "cyd"))
    assert (run.returncode, run.stderr) == (1, "")
    rows = list(csv.DictReader(run.stdout.splitlines()))
    shown = [[row["folder"], row["passed"], row["05_softmax"], row["error"]] for row in rows[:2]]
    assert shown == [[ada, "1", "not begun", ""], [ben, "1", "1 test fails", ""]]
    assert rows[2]["error"].startswith("there is no folder")


def test_a_copy_for_students_has_no_solutions(tmp_path: Path) -> None:
    """Its graders and its score card run, and no answer of a black box can be read in it."""

    def copied(folder: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(FOLDER / "student_copy.py"), str(folder)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    folder = tmp_path / "class" / "exercises"
    assert copied(folder).stdout.startswith(f"{len(EXERCISES)} exercises are in {folder}")
    assert copied(folder).stderr == f"{folder} exists and is not empty: name a new folder\n"
    texts = {path.name: path.read_text("utf-8") for path in folder.rglob("*.py")}
    assert len([name for name in texts if name.startswith("ex_")]) == len(EXERCISES)
    assert not [name for name, text in texts.items() if text.startswith('"""A solution of')]
    assert "student_copy.py" not in texts
    assert {"stress_data.py", "classify_texts.py"} <= set(texts)  # pages 12 and 21 import them
    assert (folder / "examples" / "data" / "cmudict_stress.txt.xz").is_file()
    boxes = runpy.run_path(str(folder / "black_boxes.py"))
    assert len(boxes["ANSWERS"]) == 5
    for name, answer in boxes["ANSWERS"].items():
        assert not re.search(f"{name}.*{answer}", texts["black_boxes.py"])
    run = subprocess.run(
        [sys.executable, str(folder / "score.py")], capture_output=True, text=True, check=False
    )
    assert run.stdout.count("not begun") == len(EXERCISES)
    assert_names_paths_of_the_copy(folder)


def assert_names_paths_of_the_copy(folder: Path) -> None:
    """Before and after its texts are put into Chinese."""
    for language in ("en", "zh_CN"):
        files = [*folder.rglob("*.py"), *folder.rglob("*.po")]
        text = "\n".join(path.read_text("utf-8") for path in files)
        kept = re.findall(r"\bdocs/[\w/]+(?:\.\w+)?", text)
        assert not [path for path in kept if not (folder / path).exists()]
        named = set(re.findall(rf"\b{folder.name}/[\w/.]+", text))
        assert len(named) >= len(EXERCISES)
        assert not [path for path in named if not (folder.parent / path).is_file()]
        if language == "en":
            program = [sys.executable, str(folder / "in_chinese.py")]
            subprocess.run(program, check=True, capture_output=True)
    assert "课程页面是 05_softmax，" in (folder / "ex_05_softmax.py").read_text("utf-8")


def test_a_copy_for_students_needs_the_holes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(FOLDER, tmp_path / "mine")
    path = tmp_path / "mine" / "ex_05_softmax.py"
    head, _, rest = path.read_text("utf-8").partition("raise NotImplementedError")
    assert "raise NotImplementedError" in rest  # the first function alone is written
    path.write_text(f"{head}return x{rest}", "utf-8")
    monkeypatch.setattr(student_copy, "EXERCISES", tmp_path / "mine")
    with pytest.raises(ValueError, match=r"ex_05_softmax\.py is begun"):
        student_copy.copy(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import numbpy", "raised ModuleNotFoundError when it was read: No module"),
        ("x = y", "raised NameError when it was read"),
        ("x = 1\n# caf\xe9", "is not in UTF-8, see line 2: save it"),
        (
            "name = input()",
            r"calls input\(\), but nobody answers a test: remove it, in line 1: name",
        ),
        ("import numpy\n\nx = [][0]", "raised .* when it was read: .*, in line 3: x = "),
    ],
)
def test_a_file_that_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    (tmp_path / "ex_06_masks.py").write_bytes(text.encode("latin-1"))
    monkeypatch.setattr(grading, "FOLDER", tmp_path)
    with pytest.raises(pytest.fail.Exception, match=f"^ex_06_masks.py {words}"):
        grading.exercise("ex_06_masks")


def test_a_result_of_another_kind_gets_a_sentence(tmp_path: Path) -> None:
    text = (FOLDER / "solutions" / "ex_00_text_to_numbers.py").read_text("utf-8")
    assert "numbers.get(word, unknown)" in text
    text = text.replace("numbers.get(word, unknown)", "numbers.get(word)")  # None
    (tmp_path / "ex_00_text_to_numbers.py").write_text(text, "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", str(FOLDER / "test_00_text_to_numbers.py")]
    run = subprocess.run(
        [*command, "-p", "no:cacheprovider"],
        env={**os.environ, "TINYATTN_EXERCISES": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 1
    assert "the grader cannot use what your code gives (TypeError: " in run.stdout
    assert "Traceback" not in run.stdout
    assert len(run.stdout.splitlines()) < 40


def own_pytest(
    name: str, folder: Path, seconds: str, *before: str
) -> subprocess.CompletedProcess[str]:
    command = [*before, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, str(FOLDER / f"test_{name}.py")],
        env={**os.environ, "TINYATTN_EXERCISES": str(folder), "TINYATTN_SECONDS": seconds},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def test_what_cannot_be_judged_is_skipped_with_a_reason(tmp_path: Path) -> None:
    solution = (FOLDER / "solutions" / "ex_22_own_language_model.py").read_text("utf-8")
    wrong = solution.replace("pieces[:, :-1], pieces[:, 1:]", "pieces[:, :-1], pieces[:, :-1]")
    (tmp_path / "ex_22_own_language_model.py").write_text(wrong, "utf-8")
    run = own_pytest("22_own_language_model", tmp_path, "60")
    assert "1 failed, 6 passed, 1 skipped" in run.stdout
    assert "not judged yet, because another test fails: mend that first" in run.stdout


def test_a_loop_without_end_is_stopped_and_its_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ex_05_softmax.py"
    sentence = "no end after 0.5 seconds (a loop without end?), in line {}: {}"
    solution = (FOLDER / "solutions" / "ex_05_softmax.py").read_text("utf-8")
    path.write_text(solution.replace("    e = np", "    while True:\n        x = 1\n    e = np"))
    run = own_pytest("05_softmax", tmp_path, "0.5")
    assert run.returncode == 1
    places = sentence.format(7, "while True:"), sentence.format(8, "x = 1")
    assert any(place in run.stdout for place in places), run.stdout
    assert "During handling" not in run.stdout
    assert "4 failed, 1 passed" in run.stdout  # softmax_backward is right
    path.write_text("while True:\n    pass\n", "utf-8")
    run = own_pytest("05_softmax", tmp_path, "0.5")
    places = sentence.format(1, "while True:"), sentence.format(2, "pass")
    assert any(place in run.stdout for place in places), run.stdout


@pytest.mark.skipif(os.name == "nt", reason="a shell of Windows ignores no interrupt")
def test_a_loop_without_end_is_stopped_in_the_background(tmp_path: Path) -> None:
    """A shell starts it there without SIGINT."""
    (tmp_path / "ex_05_softmax.py").write_text("while True:\n    pass\n", "utf-8")
    shell = "sh", "-c", "trap '' INT; exec \"$@\"", "sh"
    run = own_pytest("05_softmax", tmp_path, "0.5", *shell)
    assert "no end after 0.5 seconds (a loop without end?), in line " in run.stdout


def test_an_error_in_a_class_that_the_grader_calls_has_its_line(tmp_path: Path) -> None:
    solution = (FOLDER / "solutions" / "ex_02_an_engine.py").read_text("utf-8")
    broken = "    def __init__(self, *_, **__):\n        [][3]\n\n    def old"
    assert solution.count("    def __init__") == 1
    text = solution.replace("    def __init__", broken)
    (tmp_path / "ex_02_an_engine.py").write_text(text, "utf-8")
    run = own_pytest("02_an_engine", tmp_path, "60")
    assert re.search(r"the exercise asks for\?, in line \d+: \[\]\[3\]", run.stdout), run.stdout


def test_a_file_with_nearly_the_right_name_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grading, "FOLDER", tmp_path)
    for other in ("Ex_09_heads.py", "ex_9_heads.py", "ex_09_heads (1).py"):
        (tmp_path / other).write_text("", "utf-8")
        with pytest.raises(
            pytest.fail.Exception, match=re.escape(f"rename {other} to ex_09_heads.py in")
        ):
            grading.exercise("ex_09_heads")
        (tmp_path / other).unlink()
    (tmp_path / "ex_08_layer_norm.py").write_text("", "utf-8")
    with pytest.raises(pytest.fail.Exception, match=f"{tmp_path}$"):
        grading.exercise("ex_09_heads")


def test_a_file_that_python_cannot_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ex_06_masks.py").write_text("import numpy\n\ndef broken(:\n", "utf-8")
    monkeypatch.setattr(grading, "FOLDER", tmp_path)
    with pytest.raises(pytest.fail.Exception, match=r"cannot read ex_06_masks\.py, line 3"):
        grading.exercise("ex_06_masks")


def test_a_folder_that_does_not_exist_cannot_be_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "exercises"
    sentence = f"there is no folder {folder}, which TINYATTN_EXERCISES names"
    run = score(folder)
    assert (run.returncode, run.stdout, run.stderr) == (1, "", f"{sentence}\n")
    assert score(folder, "--help").stdout.startswith("usage: score.py")
    monkeypatch.setattr(grading, "FOLDER", folder)
    with pytest.raises(pytest.fail.Exception, match=re.escape(sentence)):
        grading.exercise("ex_06_masks")


def test_a_file_or_a_name_that_is_missing_cannot_be_graded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grading, "FOLDER", tmp_path)
    with pytest.raises(pytest.fail.Exception, match=r"there is no file ex_06_masks\.py in the"):
        grading.exercise("ex_06_masks")
    (tmp_path / "ex_09_heads.py").write_text("def split(x, num_heads):\n    return x\n", "utf-8")
    found = sentences("09_heads", tmp_path, monkeypatch)
    assert "ex_09_heads.py has no function split_heads" in found
    assert "ex_09_heads.py has no function multi_head_attention" in found
    with pytest.raises(pytest.fail.Exception, match=r"ex_09_heads\.py has no class Tensor"):
        _ = grading.exercise("ex_09_heads").Tensor
