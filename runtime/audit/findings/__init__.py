"""What an audit finds: a catalogue of codes, and the detectors, each a function from a trace to findings."""
