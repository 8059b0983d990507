"""What is below everything: which library holds an array, checks of arguments, random numbers."""
