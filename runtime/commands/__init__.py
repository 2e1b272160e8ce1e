"""The commands, one to a file; each is a function of its options that raises SpecError for a problem of the user's."""
