"""A program of PyTorch with its import lines changed: test_types.py runs it, and both checkers
must find no error in it."""

import math

import tinyattn.torch_names as torch
import tinyattn.torch_names.nn as nn
from tinyattn.torch_names import Tensor, optim
from tinyattn.torch_names.nn import functional as F
from tinyattn.torch_names.nn.utils import clip_grad_norm_
from tinyattn.torch_names.optim.lr_scheduler import CosineAnnealingLR, StepLR
from tinyattn.torch_names.utils.data import DataLoader, Dataset, TensorDataset


def drawn(
    logits: torch.Tensor,
    device: torch.device,
    generator: torch.Generator,
    dtype: torch.dtype,
    size: torch.Size,
) -> torch.Tensor:
    ids = torch.multinomial(logits.softmax(-1), 1, generator=generator)
    return ids.to(device).to(dtype).expand(size)


class Numbers(Dataset[tuple[Tensor, Tensor]]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return torch.full((2,), float(i)), torch.tensor(i % 2)


class Net(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, width, padding_idx=0)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.norm = nn.LayerNorm(width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Sequential(
            nn.Dropout(0.1, inplace=True), nn.ReLU(inplace=True), nn.Flatten(0, 1)
        )
        self.scale = nn.Parameter(torch.ones(width))
        self.register_buffer("mask", torch.tril(torch.ones(3, 3)))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        x = x + self.attention(x, x, x, need_weights=False)[0] / math.sqrt(2)
        for layer in self.layers:
            x = F.gelu(layer(self.norm(x))) * self.scale
        out, (h, c) = self.lstm(x)
        return self.head(out) + h.mean() + c.mean()


torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = Net().to(device)
for name, parameter in net.named_parameters():
    if parameter.dim() > 1:
        nn.init.xavier_uniform_(parameter)
    elif name.endswith("bias"):
        nn.init.zeros_(parameter)
nn.init.trunc_normal_(net.scale, std=0.02)
optimizer = optim.AdamW(net.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
schedules = [StepLR(optimizer, 3), CosineAnnealingLR(optimizer, T_max=10)]
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
loader = DataLoader(TensorDataset(torch.randint(1, 10, (4, 3)), torch.zeros(4, 3).long()), 2)
for ids, targets in loader:
    optimizer.zero_grad(set_to_none=True)
    loss = criterion(net(ids), targets.view(-1))
    loss.backward()
    clip_grad_norm_(net.parameters(), 1.0)
    torch.nn.utils.clip_grad_value_(net.parameters(), 1.0)
    optimizer.step()
    for schedule in schedules:
        schedule.step()
with torch.no_grad():
    net.eval()
    print(net(torch.tensor([[1, 2, 3]])).argmax(dim=-1).tolist())
torch.save(net.state_dict(), "net.pt")
net.load_state_dict(torch.load("net.pt"))
image = torch.randn(1, 3, 8, 8)
features = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.MaxPool2d(2))(image)
features = F.max_pool2d(F.conv2d(features, torch.ones(4, 4, 1, 1)), 2)
encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
recurrent = nn.GRU(4, 5), nn.RNN(4, 5, nonlinearity="relu"), nn.LSTMCell(4, 5)
losses = (
    nn.MSELoss(),
    nn.BCEWithLogitsLoss(),
    nn.SmoothL1Loss(),
    nn.KLDivLoss(reduction="batchmean"),
)
print(drawn(torch.zeros(2, 3), device, torch.Generator().manual_seed(1), torch.float32, (2, 4)))
print(
    F.smooth_l1_loss(image, image * 2), F.one_hot(torch.arange(3)), features.shape, len(Numbers())
)
