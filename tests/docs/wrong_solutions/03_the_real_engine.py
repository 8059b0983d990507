"""Exercise 03_the_real_engine: wrong lines, and other right ones."""

# The right lines, what stands there instead, and what the grader says of it.
WRONG = [
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
    (
        "gradient if tensor.grad is None else tensor.grad + gradient",
        "gradient if tensor.grad is None else np.add(tensor.grad, gradient, out=tensor.grad)",
        "writes into the .grad of the first",
    ),
    (
        "tensor.grad + gradient\n",
        "tensor.grad + gradient\n            tensor.inputs = None\n",
        "a leaf was freed",
    ),
    (
        "    return order\n",
        "    return [*order[1:2], *order[:1], *order[2:]]\n",
        "before one that uses it",
    ),
    (
        "gradients = {root: grad}",
        "grad *= 2\n    gradients = {root: grad}",
        "changed the gradient that it was given",
    ),
    (
        "if not retain_graph:",
        "if not retain_graph and tensor is root:",
        "frees the root, and not the others",
    ),
    (
        "parts, strict=True):\n",
        "parts, strict=True):\n"
        "            part = part * (1 + (tensor.saved[-1:] == (parent,) != "
        "tensor.saved[:1]))\n"
        "",
        "the gradient of w in (x * w)**2 + x is wrong",
    ),
    (
        "!= tensor.changes_of_saved:",
        "!= tensor.changes_of_saved or (\n"
        "            not tensor.saved and any(x.changes for x in tensor.inputs or ())\n"
        "        ):",
        "the rule of + needs no array",
    ),
    (
        "order.append(tensor)",
        "order += [tensor, tensor]",
        "users_first gives a tensor twice",
    ),
    (
        "uses[parent] += 1",
        "uses[parent] += tensor is not root",
        "y has two users and thus 2 uses, not 1",
    ),
    (
        '            raise RuntimeError("this graph has been freed: pass retain_graph=True")',
        "            tensor.inputs, tensor.rule, tensor.changes_of_saved = (), None, []",
        "a second backward through a freed graph",
    ),
    ("return uses", "return list(uses.items())", "count_uses returns a dict"),
]

# The same in another way.
ALSO_RIGHT = [
    (
        "[saved.changes for saved in tensor.saved] != tensor.changes_of_saved",
        "any(x.changes > n for x, n in zip(tensor.saved, tensor.changes_of_saved))",
    ),
]
