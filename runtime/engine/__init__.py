"""What a built step stands on: models, optimizers and state of one framework, observed and named."""
