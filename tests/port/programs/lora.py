"""Low-rank updates that replace the linear layers of a finished model by setattr."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(dim, dim)
        self.k_proj = nn.Linear(dim, dim)
        self.v_proj = nn.Linear(dim, dim)
        self.out_proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = [
            proj(x).view(b, n, self.heads, -1).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        ]
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out_proj(out.transpose(1, 2).reshape(b, n, -1))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = SelfAttention(dim, heads)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 4 * dim), nn.GELU(approximate="tanh"), nn.Linear(4 * dim, dim)
        )

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class Decoder(nn.Module):
    def __init__(self, vocab, dim, depth, heads):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.Sequential(*[Block(dim, heads) for _ in range(depth)])
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        return self.head(self.blocks(self.embed(ids)))


class LoRALinear(nn.Module):
    def __init__(self, base: nn.Linear, r=4, alpha=8, dropout=0.0):
        super().__init__()
        self.base = base
        self.base.weight.requires_grad = False
        if self.base.bias is not None:
            self.base.bias.requires_grad = False
        self.r, self.scaling = r, alpha / r
        self.lora_A = nn.Parameter(torch.empty(r, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))
        self.lora_dropout = nn.Dropout(p=dropout) if dropout > 0.0 else nn.Identity()
        self.merged = False
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, x):
        result = self.base(x)
        if self.merged:
            return result
        update = self.lora_dropout(x) @ self.lora_A.transpose(0, 1) @ self.lora_B.transpose(0, 1)
        return result + update * self.scaling

    @torch.no_grad()
    def merge(self):
        self.base.weight += (self.lora_B @ self.lora_A) * self.scaling
        self.merged = True


def add_lora(model, targets, r, alpha):
    for param in model.parameters():
        param.requires_grad_(False)
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and name.split(".")[-1] in targets:
            parent_name, _, child_name = name.rpartition(".")
            parent = model.get_submodule(parent_name)
            setattr(parent, child_name, LoRALinear(module, r=r, alpha=alpha))
    return model


def lora_state_dict(model):
    return {k: v.detach().clone() for k, v in model.state_dict().items() if "lora_" in k}


def print_trainable_parameters(model):
    trainable, total = 0, 0
    for _, param in model.named_parameters():
        total += param.numel()
        if param.requires_grad:
            trainable += param.numel()
    return f"{trainable:,d} of {total:,d} ({100 * trainable / total:.2f}%)"


def make_model(width=32):
    model = Decoder(vocab=36, dim=width, depth=2, heads=4)
    model = add_lora(model, ("q_proj", "v_proj", "0", "2"), r=4, alpha=8)
    assert "(" in print_trainable_parameters(model)
    return model


def train(model, steps, batch=4):
    trainable = filter(lambda p: p.requires_grad, model.parameters())
    optimizer = torch.optim.AdamW(trainable, lr=1e-2, weight_decay=0.0)
    loss_fn = nn.CrossEntropyLoss()
    for step in range(steps):
        ids = (torch.arange(12)[None] * 5 + torch.arange(batch)[:, None] * 3 + step) % 36
        logits = model(ids[:, :-1])
        loss = loss_fn(logits.transpose(1, 2), ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


def generate(model):
    """The most likely ids with the updates apart, after loading them anew, and merged."""
    model.eval()
    ids = torch.arange(8).unsqueeze(0)
    state = lora_state_dict(model)
    answers = []
    with torch.no_grad():
        answers.append(model(ids).argmax(-1).tolist())
        for name, param in model.named_parameters():
            if "lora_B" in name:
                param.zero_()
        answers.append(model(ids).argmax(-1).tolist())
        model.load_state_dict(state, strict=False)
        for module in model.modules():
            if isinstance(module, LoRALinear):
                module.merge()
        answers.append(model(ids).argmax(-1).tolist())
    return answers
