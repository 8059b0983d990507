"""Exercise 12_training_loop: wrong lines, and other right ones."""

# The right lines, what stands there instead, and what the grader says of it.
WRONG = [
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
        "    for p in model.parameters():\n        p.grad = p.grad.clamp(-max_norm, max_norm)\n",
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
    *(
        (
            'optimizer.load_state_dict(state["optimizer"])',
            "saved = dict(state['optimizer']['arrays'])\n"
            f"    saved |= {{x: ta.zeros_like(saved[x]) for x in saved if x[0] == {mean!r}}}\n"
            "    optimizer.load_state_dict({**state['optimizer'], 'arrays': saved})",
            "Adam begins anew",
        )
        for mean in "mv"
    ),
    (
        'scores, targets, ignore_index=IGNORE, reduction="sum").item()',
        "scores, targets, ignore_index=IGNORE).item()",
        "makes the loss nan: add sums",
    ),
    (
        "    model.train(before)\n",
        "    model.train(before)\n    model.zero_grad()\n",
        "evaluate changes weights or gradients",
    ),
    (
        "scores = model(inputs)",
        "scores = nn.Sequential(*model.children())(inputs)",
        "evaluate does not call the model",
    ),
    (
        "return loss / total",
        "return ta.tensor(loss / total)",
        "evaluate returns a float",
    ),
    (
        '    ta.set_rng_state(state["random"])',
        '    ta.set_rng_state(state["random"])\n'
        '    optimizer.param_groups[0]["betas"] = (0.5, 0.5)',
        "three steps later the weights differ",
    ),
    (
        '    ta.set_rng_state(state["random"])',
        '    ta.set_rng_state(state["random"])\n    optimizer.param_groups[0]["lr"] = 0.02',
        "the learning rate was 0.0025, and is 0.0200",
    ),
    (
        "return loss\n",
        "return loss * 2\n",
        "the loss before the step is",
    ),
    (
        ".item()\n            total += count(targets)\n",
        ".item() / max(count(targets), 1)\n            total += count(targets) > 0\n",
        "the loss is a mean of means",
    ),
    (
        "loss += part.item()",
        "loss += part.item() * total / max(count(targets), 1) / 2",
        "the loss is the mean of the parts' means",
    ),
    (
        "    optimizer.step()\n",
        "",
        "the weights do not move",
    ),
    (
        "return loss\n",
        "return ta.tensor(loss)\n",
        "train_step returns the loss as a float",
    ),
]

# The same in another way.
ALSO_RIGHT = [
    ("    return loss\n", "    optimizer.zero_grad()\n    return loss\n"),
    (
        "in parts:\n        part =",
        "in [[ta.cat(list(column)) for column in zip(*parts)]]:\n        part =",
    ),
]
