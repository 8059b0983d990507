"""Print the oldest versions that setup.cfg permits, for pip: numpy==2.0, one a line."""

import re
from configparser import ConfigParser
from pathlib import Path

config = ConfigParser()
config.read(Path(__file__).parent.parent / "setup.cfg", encoding="utf-8")
lines = config["options"]["install_requires"] + config["options.extras_require"]["test"]
for line in lines.splitlines():
    if bound := re.fullmatch(r"([\w-]+)[>=]=([\d.]+).*", line):
        print(f"{bound[1]}=={bound[2]}")
