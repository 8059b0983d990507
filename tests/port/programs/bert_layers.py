"""A masked language model with the names of a widely used library of models."""

import math

import torch
from torch import nn
from torch.nn import CrossEntropyLoss


class BertConfig:
    def __init__(self, hidden_size=32, hidden_act="gelu_new"):
        self.vocab_size = 50
        self.hidden_size = hidden_size
        self.num_hidden_layers = 2
        self.num_attention_heads = 4
        self.intermediate_size = 2 * hidden_size
        self.hidden_act = hidden_act
        self.hidden_dropout_prob = 0.0
        self.attention_probs_dropout_prob = 0.0
        self.max_position_embeddings = 40
        self.type_vocab_size = 2
        self.initializer_range = 0.1
        self.layer_norm_eps = 1e-12
        self.pad_token_id = 0


def gelu(x):
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def gelu_new(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))


class NewGELUActivation(nn.Module):
    def forward(self, input):
        return (
            0.5 * input * (1 + torch.tanh(math.sqrt(2 / math.pi) * (input + 0.044715 * input**3)))
        )


ACT2FN = {"gelu": gelu, "relu": torch.nn.functional.relu, "gelu_new": NewGELUActivation()}


class BertEmbeddings(nn.Module):
    def __init__(self, config):
        super().__init__()
        size, padding = config.hidden_size, config.pad_token_id
        self.word_embeddings = nn.Embedding(config.vocab_size, size, padding_idx=padding)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        positions = torch.arange(config.max_position_embeddings).expand((1, -1))
        self.register_buffer("position_ids", positions, persistent=False)
        types = torch.zeros(self.position_ids.size(), dtype=torch.long)
        self.register_buffer("token_type_ids", types, persistent=False)

    def forward(self, input_ids, token_type_ids=None):
        input_shape = input_ids.size()
        seq_length = input_shape[1]
        position_ids = self.position_ids[:, :seq_length]
        if token_type_ids is None:
            buffered = self.token_type_ids[:, :seq_length]
            token_type_ids = buffered.expand(input_shape[0], seq_length)
        embeddings = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
        embeddings += self.position_embeddings(position_ids)
        return self.dropout(self.LayerNorm(embeddings))


class BertSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        if config.hidden_size % config.num_attention_heads != 0:
            raise ValueError(
                "The hidden size (%d) is not a multiple of the number of attention heads (%d)"
                % (config.hidden_size, config.num_attention_heads)
            )
        self.num_attention_heads = config.num_attention_heads
        self.attention_head_size = int(config.hidden_size / config.num_attention_heads)
        self.all_head_size = self.num_attention_heads * self.attention_head_size
        self.query = nn.Linear(config.hidden_size, self.all_head_size)
        self.key = nn.Linear(config.hidden_size, self.all_head_size)
        self.value = nn.Linear(config.hidden_size, self.all_head_size)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def transpose_for_scores(self, x):
        new_x_shape = x.size()[:-1] + (self.num_attention_heads, self.attention_head_size)
        x = x.view(*new_x_shape)
        return x.permute(0, 2, 1, 3)

    def forward(self, hidden_states, attention_mask=None, head_mask=None):
        query_layer = self.transpose_for_scores(self.query(hidden_states))
        key_layer = self.transpose_for_scores(self.key(hidden_states))
        value_layer = self.transpose_for_scores(self.value(hidden_states))
        attention_scores = torch.matmul(query_layer, key_layer.transpose(-1, -2))
        attention_scores = attention_scores / math.sqrt(self.attention_head_size)
        if attention_mask is not None:
            attention_scores = attention_scores + attention_mask
        attention_probs = nn.functional.softmax(attention_scores, dim=-1)
        attention_probs = self.dropout(attention_probs)
        if head_mask is not None:
            attention_probs = attention_probs * head_mask
        context_layer = torch.matmul(attention_probs, value_layer)
        context_layer = context_layer.permute(0, 2, 1, 3).contiguous()
        new_context_layer_shape = context_layer.size()[:-2] + (self.all_head_size,)
        return context_layer.view(new_context_layer_shape), attention_probs


class BertOutput(nn.Module):
    """The product after an attention or an intermediate layer, and the sum with its input."""

    def __init__(self, config, size):
        super().__init__()
        self.dense = nn.Linear(size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden_states, input_tensor):
        hidden_states = self.dropout(self.dense(hidden_states))
        return self.LayerNorm(hidden_states + input_tensor)


class BertAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self = BertSelfAttention(config)
        self.output = BertOutput(config, config.hidden_size)

    def forward(self, hidden_states, attention_mask=None, head_mask=None):
        self_outputs = self.self(hidden_states, attention_mask, head_mask)
        return (self.output(self_outputs[0], hidden_states),) + self_outputs[1:]


class BertIntermediate(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        if isinstance(config.hidden_act, str):
            self.intermediate_act_fn = ACT2FN[config.hidden_act]
        else:
            self.intermediate_act_fn = config.hidden_act

    def forward(self, hidden_states):
        return self.intermediate_act_fn(self.dense(hidden_states))


class BertLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention = BertAttention(config)
        self.intermediate = BertIntermediate(config)
        self.output = BertOutput(config, config.intermediate_size)

    def forward(self, hidden_states, attention_mask=None, head_mask=None):
        outputs = self.attention(hidden_states, attention_mask, head_mask)
        layer_output = self.output(self.intermediate(outputs[0]), outputs[0])
        return (layer_output,) + outputs[1:]


class BertEncoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.layer = nn.ModuleList([BertLayer(config) for _ in range(config.num_hidden_layers)])

    def forward(self, hidden_states, attention_mask, head_mask):
        all_attentions = ()
        for i, layer_module in enumerate(self.layer):
            layer_outputs = layer_module(hidden_states, attention_mask, head_mask[i])
            hidden_states = layer_outputs[0]
            all_attentions = all_attentions + (layer_outputs[1],)
        return hidden_states, all_attentions


class BertPreTrainedModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config

    @property
    def dtype(self):
        return next(self.parameters()).dtype

    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            module.weight.data.normal_(mean=0.0, std=self.config.initializer_range)
            if module.bias is not None:
                module.bias.data.zero_()
        elif isinstance(module, nn.Embedding):
            module.weight.data.normal_(mean=0.0, std=self.config.initializer_range)
            if module.padding_idx is not None:
                module.weight.data[module.padding_idx].zero_()
        elif isinstance(module, nn.LayerNorm):
            module.bias.data.zero_()
            module.weight.data.fill_(1.0)

    def get_extended_attention_mask(self, attention_mask):
        extended_attention_mask = attention_mask[:, None, None, :]
        extended_attention_mask = extended_attention_mask.to(dtype=self.dtype)
        return (1.0 - extended_attention_mask) * torch.finfo(self.dtype).min


class BertForMaskedLM(BertPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.embeddings = BertEmbeddings(config)
        self.encoder = BertEncoder(config)
        self.transform = nn.Sequential(
            nn.Linear(config.hidden_size, config.hidden_size),
            nn.GELU(),
            nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps),
        )
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.apply(self._init_weights)
        self.decoder.weight = self.embeddings.word_embeddings.weight

    def forward(self, input_ids, attention_mask=None, labels=None):
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        extended_attention_mask = self.get_extended_attention_mask(attention_mask)
        head_mask = [None] * self.config.num_hidden_layers
        embedding_output = self.embeddings(input_ids)
        sequence_output, _ = self.encoder(embedding_output, extended_attention_mask, head_mask)
        scores = self.decoder(self.transform(sequence_output)) + self.bias
        loss = None
        if labels is not None:
            loss_fct = CrossEntropyLoss()
            loss = loss_fct(scores.view(-1, self.config.vocab_size), labels.view(-1))
        return loss, scores


def make_model(width=32):
    return BertForMaskedLM(BertConfig(hidden_size=width))


def train(model, steps, batch=4):
    no_decay = ["bias", "LayerNorm.weight"]
    named = list(model.named_parameters())
    optimizer_grouped_parameters = [
        {
            "params": [p for n, p in named if not any(nd in n for nd in no_decay)],
            "weight_decay": 0.01,
        },
        {
            "params": [p for n, p in named if any(nd in n for nd in no_decay)],
            "weight_decay": 0.0,
        },
    ]
    optimizer = torch.optim.AdamW(optimizer_grouped_parameters, lr=2e-3, eps=1e-8)
    model.train()
    for step in range(steps):
        rows = torch.arange(batch).unsqueeze(1)
        input_ids = (rows * 11 + step * 7 + torch.arange(14) * 3) % 45 + 5
        attention_mask = (torch.arange(14).unsqueeze(0) < (14 - rows * 2 % 9)).long()
        input_ids = input_ids * attention_mask
        labels = input_ids.clone()
        chosen = (input_ids + step) % 4 == 0
        labels[~chosen | (attention_mask == 0)] = -100
        input_ids[chosen & attention_mask.bool()] = 3
        loss, _ = model(input_ids, attention_mask=attention_mask, labels=labels)
        model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield loss


def generate(model):
    model.eval()
    ids = torch.LongTensor([[7, 3, 13, 16, 3, 22]])
    with torch.no_grad():
        _, scores = model(ids)
    return torch.argmax(scores, dim=-1).squeeze(0).cpu().numpy().tolist()
