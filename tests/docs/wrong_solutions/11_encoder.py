"""Exercise 11_encoder: wrong lines, and other right ones."""

# The right lines, what stands there instead, and what the grader says of it.
WRONG = [
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
    ("y = self.norm_1(x)", "y = self.norm_2(x)", "norm_1 belongs to the attention"),
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
    *(
        (
            "layer(x, mask=mask)",
            f"layer(x, mask=mask if layer is self.layers[{i}] else None)",
            "gives a layer no mask",
        )
        for i in (0, -1)
    ),
    (
        "self.norm_1 = nn.LayerNorm(size)",
        "self.norm_1 = nn.Identity()",
        "your layer has no nn.LayerNorm self.norm_1",
    ),
    (
        "self.norm_2 = nn.LayerNorm(size)",
        "self.norm_2 = nn.Identity()",
        "your layer has no nn.LayerNorm self.norm_2",
    ),
    (
        "        for layer in self.layers:",
        "        x = x.detach()\n        for layer in self.layers:",
        "no gradient reaches x",
    ),
    (
        "return self.norm_2(x + self.dropout(self.feed_forward(x)))",
        "return self.norm_2(x + self.dropout(self.feed_forward(x)))[..., :1]",
        "gives (2, 4, 6), not (2, 4, 1)",
    ),
]

# The same in another way.
ENCODER = """self.norm = nn.LayerNorm(size) if norm == "pre" else nn.Identity()

    def forward(self, x: ta.Tensor, mask: Any = None) -> ta.Tensor:
        for layer in self.layers:
            x = layer(x, mask=mask)
        return self.norm(x)"""
ALSO_RIGHT = [
    ("layer(x, mask=mask)", "layer(x, mask)"),
    (  # with post-norm the norm is there, and is not called
        ENCODER,
        ENCODER.replace(
            ' if norm == "pre" else nn.Identity()', "\n        self.order = norm"
        ).replace("self.norm(x)", 'self.norm(x) if self.order == "pre" else x'),
    ),
]
