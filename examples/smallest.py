"""The smallest training: an encoder learns to write eight digits backwards, in a few seconds."""

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn, optim

ta.manual_seed(0)
embed, position, head = nn.Embedding(10, 32), nn.PositionalEncoding(32), nn.Linear(32, 10)
layer = nn.EncoderLayer(32, nn.MultiHeadedAttention(4, 32), nn.PositionwiseFeedForward(32, 64))
model = nn.Sequential(embed, position, nn.Encoder(layer, 1), head)
adam = optim.Adam(model.parameters(), lr=3e-3)

for step in range(301):
    digits = ta.randint(0, 10, (64, 8))  # new ones in every step
    logits = model(digits)  # (64, 8, 10)
    loss = F.cross_entropy(logits.reshape(-1, 10), digits[:, ::-1].reshape(-1))
    adam.zero_grad()
    loss.backward()
    adam.step()
    if step % 50 == 0:
        print(f"step {step:3}  loss {loss.item():.3f}")

digits = ta.randint(0, 10, (1000, 8))
with ta.no_grad():
    backwards = model.eval()(digits).argmax(-1)
right = (backwards == digits[:, ::-1]).all(dim=1)
print(f"{digits[0].tolist()} backwards: {backwards[0].tolist()}")
print(f"{right.float().mean().item():.1%} of 1,000 new numbers right")
