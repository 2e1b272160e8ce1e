"""The intermediate representation: values, cells, nodes, instructions, and the program."""
