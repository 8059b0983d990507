"""What all other folders use.

backend.py  says which library holds an array, and moves arrays between devices
checks.py   checks and converts arguments
random.py   has the one generator of all random numbers
names.py    says what to write for a name that PyTorch has and tinyattn has not
"""
